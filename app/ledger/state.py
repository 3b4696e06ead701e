"""The only statements that write `attempt.state`: begin, close, apply. Each is a compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId, Lease
from policy.states import AttemptState
from policy.words import ErrorClass

# The rows are locked by the caller (intent, attempt, outbox, gate); the old state in the WHERE is
# the second guard: a caller that forgot the lock changes nothing.
BEGIN = """
UPDATE attempt a
SET state = 'prepared', decision_id = n.decision_id, lease = %(lease)s, prepared_at = %(now)s,
    next_check_at = n.deadline_at, horizon_at = n.horizon_at
FROM unnest(%(ids)s::uuid[], %(decision_ids)s::uuid[], %(deadlines)s::timestamptz[], %(horizons)s::timestamptz[])
     AS n (id, decision_id, deadline_at, horizon_at)
WHERE a.id = n.id AND a.state = 'queued'
RETURNING a.id
"""

CLOSE = """
UPDATE attempt a SET state = n.state, ended_at = %(now)s
FROM unnest(%(ids)s::uuid[], %(states)s::text[]) AS n (id, state)
WHERE a.id = n.id AND a.state = 'queued'
RETURNING a.id
"""

# A class and a code, once known, are not erased by a report that brings none.
APPLY = """
UPDATE attempt a
SET state = n.state, taken = n.taken, next_check_at = n.next_check_at, horizon_at = coalesce(a.horizon_at, n.horizon_at),
    error_class = coalesce(n.error_class, a.error_class), error_code = coalesce(n.error_code, a.error_code),
    answered_at = coalesce(a.answered_at, %(now)s),
    ended_at = CASE WHEN n.state IN ('failed', 'delivered') THEN coalesce(a.ended_at, %(now)s) ELSE a.ended_at END
FROM unnest(%(ids)s::uuid[], %(from_states)s::text[], %(states)s::text[], %(taken)s::boolean[], %(checks)s::timestamptz[],
            %(horizons)s::timestamptz[], %(classes)s::text[], %(codes)s::text[])
     AS n (id, from_state, state, taken, next_check_at, horizon_at, error_class, error_code)
WHERE a.id = n.id AND a.state = n.from_state
RETURNING a.id
"""


class LockBroken(DaybookError):
    """A row changed under a lock that we hold: a statement elsewhere goes past the books."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """An admitted attempt: its decision, and until when it must have been written."""

    attempt_id: AttemptId
    decision_id: UUID
    deadline_at: datetime
    horizon_at: datetime


@dataclass(frozen=True, slots=True)
class Application:
    """What all reports about one attempt, joined, make of it."""

    attempt_id: AttemptId
    from_state: AttemptState
    state: AttemptState
    taken: bool
    next_check_at: datetime | None
    horizon_at: datetime | None
    error_class: ErrorClass | None
    error_code: str | None


def begin(session: Session, beginnings: Sequence[Beginning], *, lease: Lease, now: datetime) -> set[UUID]:
    """Move queued attempts to prepared; return those that were still queued."""
    ours = sorted(beginnings, key=lambda b: b.attempt_id)
    done = rows(
        session,
        BEGIN,
        ids=[b.attempt_id for b in ours],
        decision_ids=[b.decision_id for b in ours],
        deadlines=[b.deadline_at for b in ours],
        horizons=[b.horizon_at for b in ours],
        lease=lease,
        now=now,
    )
    return {row.id for row in done}


def close(session: Session, closings: Sequence[tuple[AttemptId, AttemptState]], *, now: datetime) -> set[UUID]:
    """Close queued attempts (suppressed, expired, cancelled); return those that were still queued."""
    ours = sorted(closings)
    done = rows(session, CLOSE, ids=[i for i, _ in ours], states=[s.value for _, s in ours], now=now)
    return {row.id for row in done}


def apply(session: Session, applications: Sequence[Application], *, now: datetime) -> set[UUID]:
    """Write what was heard; return those whose state was what the caller had locked."""
    ours = sorted(applications, key=lambda a: a.attempt_id)
    done = rows(
        session,
        APPLY,
        ids=[a.attempt_id for a in ours],
        from_states=[a.from_state.value for a in ours],
        states=[a.state.value for a in ours],
        taken=[a.taken for a in ours],
        checks=[a.next_check_at for a in ours],
        horizons=[a.horizon_at for a in ours],
        classes=[a.error_class.value if a.error_class else None for a in ours],
        codes=[a.error_code for a in ours],
        now=now,
    )
    return {row.id for row in done}
