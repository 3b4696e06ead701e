"""Cancel an event: what is still ours stops, what was handed off is told of, per channel. Repeating answers the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents, was_taken
from app.ledger.view import EventView, IntentView, read_events

# With the intents it joined: an event that is cancelled while it waits must not be promoted, and
# whoever promotes holds the lock of the intent that closes.
INTENTS = """
SELECT id, true AS own FROM intent WHERE tenant_id = %(tenant)s AND event_id = %(event)s
UNION ALL
SELECT intent_id, false FROM joining WHERE tenant_id = %(tenant)s AND event_id = %(event)s
"""

IS_CANCELLED = """
SELECT EXISTS (
    SELECT FROM operator_action WHERE tenant_id = %(tenant)s AND verb = 'cancel' AND subject ->> 'event_id' = %(event)s) AS yes
"""


class NoSuchEvent(DaybookError):
    """The tenant has no event of this id."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """How the event stands after the cancel; `handed_off` names the channels that had left already."""

    event: EventView
    handed_off: tuple[IntentView, ...]


def cancel_event(session: Session, *, tenant_id: UUID, event_id: UUID, actor: str, now: datetime) -> Cancelled:
    """Cancel an event's intents; NoSuchEvent when the tenant has none of this id.

    Linearizable: the intents' locks put it before or after any handoff, and what it answers is what
    they say under those locks.
    """
    if event_id not in read_events(session, tenant_id=tenant_id, event_ids=[event_id]):
        raise NoSuchEvent("no such event")
    intents = rows(session, INTENTS, tenant=tenant_id, event=event_id)
    books = lock_books(session, [row.id for row in intents])
    own = [books.intents[row.id] for row in intents if row.own]
    still_open = [i.id for i in own if i.closed_at is None and i.close_requested_at is None]
    # What somebody asked is kept once, also when it came too late to change anything.
    if still_open or not _is_cancelled(session, tenant_id, event_id):
        action_id = record_action(
            session, tenant_id=tenant_id, actor=actor, verb="cancel", subject={"event_id": str(event_id)}, reason="", now=now
        )
        cancel_intents(session, books, still_open, cause_id=action_id, now=now)
    event = read_events(session, tenant_id=tenant_id, event_ids=[event_id])[event_id]
    left = {i.id for i in own if any(was_taken(a) for a in books.attempts_of(i.id))}
    return Cancelled(event, tuple(i for i in event.intents if i.intent_id in left))


def _is_cancelled(session: Session, tenant_id: UUID, event_id: UUID) -> bool:
    return bool(rows(session, IS_CANCELLED, tenant=tenant_id, event=str(event_id))[0].yes)
