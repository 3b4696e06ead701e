"""Open questions as an operator reads them: grouped by route and cause, or one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.settle import NoSuchReview
from app.ground.db import rows
from policy.settle import Question, answers_to
from policy.states import AttemptState
from policy.words import Settlement

# What is open of one tenant is read by an index that holds nothing else.
GROUPS: Final = """
WITH asked AS MATERIALIZED (
    SELECT v.route_id, v.cause, v.opened_at, e.stake
    FROM review v JOIN event e ON e.id = v.event_id WHERE v.tenant_id = %(tenant)s AND v.settled_at IS NULL),
staked AS (
    SELECT route_id, cause, json_agg(json_build_object('count', count, 'unit', unit) ORDER BY unit) AS stake
    FROM (SELECT route_id, cause, stake ->> 'unit' AS unit, sum((stake ->> 'count')::numeric) AS count
          FROM asked WHERE stake IS NOT NULL GROUP BY 1, 2, 3) s GROUP BY 1, 2)
SELECT r.name AS route, g.cause, g.count, g.oldest_at, coalesce(s.stake, '[]') AS stake
FROM (SELECT route_id, cause, count(*) AS count, min(opened_at) AS oldest_at FROM asked GROUP BY 1, 2) g
LEFT JOIN staked s ON s.route_id IS NOT DISTINCT FROM g.route_id AND s.cause = g.cause
LEFT JOIN route r ON r.id = g.route_id
ORDER BY g.oldest_at, route, g.cause
"""

QUESTIONS: Final = """
SELECT v.id, r.name AS route, v.cause, v.opened_at, v.event_id, e.type, e.subject, e.recipient_ref, e.stake, v.intent_id,
       i.channel, i.state AS intent_state, i.closed_at, i.close_requested_at, i.expires_at, v.attempt_id, a.ordinal AS attempt,
       a.state AS attempt_state, a.next_check_at, a.prepared_at, coalesce(o.due_at = 'infinity', false) AS is_parked,
       NOT EXISTS (SELECT FROM attempt l WHERE l.intent_id = a.intent_id AND l.ordinal > a.ordinal) AS is_last,
       v.settled_at, v.settled_as, v.settled_by, v.settled_reason
FROM review v JOIN event e ON e.id = v.event_id JOIN intent i ON i.id = v.intent_id JOIN attempt a ON a.id = v.attempt_id
LEFT JOIN route r ON r.id = v.route_id LEFT JOIN outbox o ON o.attempt_id = v.attempt_id
WHERE v.tenant_id = %(tenant)s AND {which}
"""
ONE: Final = QUESTIONS.format(which="v.id = %(id)s")
PAGE: Final = QUESTIONS.format(
    which="""v.settled_at IS NULL AND (%(after)s::uuid IS NULL OR v.id > %(after)s)
  AND (%(route)s::text IS NULL OR r.name = %(route)s) AND (%(cause)s::text IS NULL OR v.cause = %(cause)s)
ORDER BY v.id LIMIT %(limit)s"""
)


@dataclass(frozen=True, slots=True)
class OpenGroup:
    """The open reviews of one cause on one route."""

    route: str | None
    cause: str
    count: int
    oldest_at: datetime
    oldest_for: timedelta
    stake: Sequence[Mapping[str, Any]]
    """What is at risk, by unit: `{"count": 3, "unit": "seat"}`."""


@dataclass(frozen=True, slots=True)
class ReviewView:
    """One question, with what its answer depends on."""

    review: Any
    """A row of QUESTIONS."""
    open_for: timedelta
    answers: Sequence[Settlement]
    """How it can be settled now; none once it is settled."""


def list_groups(session: Session, *, tenant_id: UUID, now: datetime) -> list[OpenGroup]:
    """List a tenant's open reviews by route and cause, the oldest first."""
    return [
        OpenGroup(g.route, g.cause, g.count, g.oldest_at, now - g.oldest_at, g.stake)
        for g in rows(session, GROUPS, tenant=tenant_id)
    ]


def list_questions(
    session: Session, *, tenant_id: UUID, route: str | None, cause: str | None, after: UUID | None, limit: int, now: datetime
) -> list[ReviewView]:
    """List a tenant's open reviews one by one, the oldest first, after the one that a page ended with."""
    found = rows(session, PAGE, tenant=tenant_id, route=route, cause=cause, after=after, limit=limit)
    return [_view(row, now) for row in found]


def read_question(session: Session, *, tenant_id: UUID, review_id: UUID, now: datetime) -> ReviewView:
    """Read one review, open or settled; NoSuchReview."""
    found = rows(session, ONE, tenant=tenant_id, id=review_id)
    if not found:
        raise NoSuchReview("no such review")
    return _view(found[0], now)


def _view(row: Any, now: datetime) -> ReviewView:  # noqa: ANN401 - a row of QUESTIONS
    question = Question(
        cause=row.cause,
        state=AttemptState(row.attempt_state),
        is_parked=row.is_parked,
        is_last=row.is_last,
        is_asked=row.next_check_at is not None,
        is_open=row.closed_at is None,
        is_closing=row.close_requested_at is not None,
        expires_at=row.expires_at,
    )
    is_settled = row.settled_at is not None
    open_for = (row.settled_at or now) - row.opened_at
    return ReviewView(row, open_for, [] if is_settled else answers_to(question, now=now))
