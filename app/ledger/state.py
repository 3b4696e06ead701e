"""The only statements that write `attempt.state`: begin, close, apply. Each is a compare-and-set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Rows, Statement, as_page, rows
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
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (id uuid, decision_id uuid, deadline_at timestamptz, horizon_at timestamptz) LIMIT %(count)s) n
WHERE a.id = n.id AND a.state = 'queued'
RETURNING a.id
"""

CLOSE = """
UPDATE attempt a SET state = n.state, ended_at = %(now)s
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (id uuid, state text) LIMIT %(count)s) n
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
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (id uuid, from_state text, state text, taken boolean, next_check_at timestamptz, horizon_at timestamptz,
                error_class text, error_code text) LIMIT %(count)s) n
WHERE a.id = n.id AND a.state = n.from_state
RETURNING a.id
"""


class LockBroken(DaybookError):
    """A row changed under a lock that we hold: a statement elsewhere goes past the books."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """An admitted attempt: its decision, and until when it must have been written."""

    id: AttemptId
    decision_id: UUID
    deadline_at: datetime
    horizon_at: datetime


@dataclass(frozen=True, slots=True)
class Application:
    """What all reports about one attempt, joined, make of it."""

    id: AttemptId
    from_state: AttemptState
    state: AttemptState
    taken: bool
    next_check_at: datetime | None
    horizon_at: datetime | None
    error_class: ErrorClass | None
    error_code: str | None


def beginning(beginnings: Sequence[Beginning], *, lease: Lease, now: datetime) -> Statement:
    """Give the statement that moves queued attempts to prepared; it returns those that were still queued."""
    ours = sorted(beginnings, key=lambda b: b.id)
    return BEGIN, {**as_page(ours), "lease": lease, "now": now}


def applying(applications: Sequence[Application], *, now: datetime) -> Statement:
    """Give the statement that writes what was heard; it returns those whose state was what the caller had locked."""
    ours = sorted(applications, key=lambda a: a.id)
    return APPLY, {**as_page(ours), "now": now}


def close(session: Session, closings: Sequence[tuple[AttemptId, AttemptState]], *, now: datetime) -> set[UUID]:
    """Close queued attempts (suppressed, expired, cancelled); return those that were still queued."""
    new = as_page([{"id": i, "state": state} for i, state in sorted(closings)])
    return {row.id for row in rows(session, CLOSE, **new, now=now)}


def confirm(changed: Rows, locked: Sequence[object]) -> None:
    """Raise LockBroken unless a statement changed every row that we hold the lock of."""
    if len(changed) != len(locked):
        raise LockBroken("an attempt changed its state under our lock")
