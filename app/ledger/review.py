"""Open questions that only a person may settle, and the parking of rows that nobody may claim meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import as_page, insertion, rows, run_together
from app.ground.ids import new_id
from app.ledger.books import Books
from app.ledger.transition import Change, change_of, record, waiting_state
from models.work import Review
from policy.states import PublicState
from policy.words import Reason, Source

# One open review per attempt: a second cause of doubt finds the first question still open.
ONCE = "ON CONFLICT (attempt_id) WHERE settled_at IS NULL DO NOTHING"

PARK = """
UPDATE outbox o SET due_at = 'infinity', lease = NULL, leased_until = NULL, reason = n.reason
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (id uuid, reason text) LIMIT %(count)s) n
WHERE o.attempt_id = n.id
"""

RELEASE = """
UPDATE outbox SET due_at = %(now)s, reason = NULL, lost_lease_count = 0
WHERE attempt_id = ANY(%(ids)s::uuid[]) AND due_at = 'infinity'
"""


def open_reviews(session: Session, books: Books, causes: Mapping[UUID, str], *, now: datetime) -> None:
    """Open a review for each of these locked attempts (attempt id -> cause)."""
    new = []
    for attempt_id, cause in sorted(causes.items()):
        attempt = books.attempts[attempt_id]
        new.append(
            {
                "id": new_id(),
                "tenant_id": attempt.tenant_id,
                "event_id": attempt.event_id,
                "intent_id": attempt.intent_id,
                "attempt_id": attempt_id,
                "route_id": attempt.route_id,
                "cause": cause,
                "opened_at": now,
                "settled_at": None,
                "settled_as": None,
                "settled_by": None,
                "settled_action_id": None,
                "settled_reason": None,
            }
        )
    if new:
        run_together(session, [insertion(Review, new, tail=ONCE)])


def park(session: Session, books: Books, causes: Mapping[UUID, Reason], *, now: datetime) -> None:
    """Keep these queued attempts in the outbox, due never, and ask a person."""
    ids: Sequence[UUID] = sorted(causes)
    rows(session, PARK, **as_page([{"id": i, "reason": causes[i]} for i in ids]))
    open_reviews(session, books, dict(causes), now=now)
    record(session, [_change(books, i, causes[i]) for i in ids], now=now)


def release(session: Session, books: Books, actions: Mapping[UUID, UUID], *, now: datetime) -> None:
    """Let locked parked attempts go again, due now, by an operator's act (attempt id -> the action's)."""
    ids = sorted(actions)
    if not ids:
        return
    rows(session, RELEASE, ids=ids, now=now)
    intents = {i: books.intents[books.attempts[i].intent_id] for i in ids}
    changes = [
        change_of(
            books,
            i,
            intent,
            PublicState.QUEUED,
            before=waiting_state(intent),
            reason=None,
            cause=Source.OPERATOR,
            cause_id=actions[i],
        )
        for i, intent in intents.items()
    ]
    record(session, changes, now=now)


def _change(books: Books, attempt_id: UUID, reason: Reason) -> Change:
    intent = books.intents[books.attempts[attempt_id].intent_id]
    before = waiting_state(intent)
    return change_of(
        books, attempt_id, intent, PublicState.DEFERRED, before=before, reason=reason, cause="dispatch", cause_id=None
    )
