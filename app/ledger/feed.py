"""The feed: transitions in one order that readers follow by cursor, without gaps, while writers commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ledger.tally import add_up

# One sequencer at a time, without waiting: who loses leaves it to the winner. A transaction lock,
# so that it works behind a transaction-mode pooler.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('daybook.feed')) AS ours"

# In a later statement than the lock: its snapshot is younger than whatever the last sequencer
# committed. Positions are dealt out in the order of the SELECT; each intent's transitions commit
# in the order of n, so a later n is never visible without the earlier one.
SEQUENCE = """
WITH moved AS (
    DELETE FROM feed_pending WHERE transition_id IN (
        SELECT transition_id FROM feed_pending ORDER BY intent_id, n LIMIT %(limit)s)
    RETURNING transition_id, intent_id, n, tenant_id, recipient_ref)
INSERT INTO feed (transition_id, intent_id, tenant_id, recipient_ref)
SELECT transition_id, intent_id, tenant_id, recipient_ref FROM moved ORDER BY intent_id, n
RETURNING transition_id
"""

CLOCK = "SELECT clock_timestamp() AS now"
COMPLETE = "UPDATE feed_state SET complete_until = greatest(complete_until, %(until)s) WHERE id = 1"
STATE = "SELECT epoch, complete_until FROM feed_state WHERE id = 1"

ITEMS = """
SELECT f.position, t.id, t.at, t.event_id, e.key, e.type, e.subject, e.recipient_ref, t.intent_id, i.channel,
       a.ordinal AS attempt, t.n, t.state, t.reason, t.next_at
FROM (SELECT position, transition_id FROM feed
      WHERE {wanted} AND tenant_id = %(tenant)s AND position > %(after)s ORDER BY position LIMIT %(limit)s) f
JOIN transition t ON t.id = f.transition_id
JOIN event e ON e.id = t.event_id
JOIN intent i ON i.id = t.intent_id
JOIN attempt a ON a.id = t.attempt_id
ORDER BY f.position
"""

# An event that joined reads the history of the intent it joined.
INTENTS_OF_EVENT = """
SELECT id FROM intent WHERE tenant_id = %(tenant)s AND event_id = %(event)s
UNION SELECT intent_id FROM joining WHERE tenant_id = %(tenant)s AND event_id = %(event)s
"""

PAGE: Final = 5000


class UnknownCursor(DaybookError):
    """The cursor is none of ours, or of an epoch that a restore has ended: read again from the start."""


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """One page of a tenant's history."""

    items: Sequence[Any]
    next_cursor: str
    has_more: bool
    complete_until: datetime


def sequence(session: Session) -> int:
    """Give places to transitions that have none; 0 also when another sequencer is at it."""
    if not rows(session, TRY_LOCK)[0].ours:
        return 0
    until = rows(session, CLOCK)[0].now
    moved = [row.transition_id for row in rows(session, SEQUENCE, limit=PAGE)]
    if moved:
        add_up(session, moved)
    if len(moved) < PAGE:  # a full page may have left some behind
        rows(session, COMPLETE, until=until)
    return len(moved)


def read_history(
    session: Session,
    *,
    tenant_id: UUID,
    after: str | None,
    limit: int,
    recipient: str | None = None,
    event_id: UUID | None = None,
) -> HistoryPage:
    """Read up to `limit` items after a cursor; UnknownCursor when the cursor cannot be followed."""
    state = rows(session, STATE)[0]
    start = read_cursor(after, epoch=state.epoch)
    params: dict[str, Any] = {"tenant": tenant_id, "after": start, "limit": limit + 1}
    wanted = "true"
    if recipient is not None:
        wanted, params["recipient"] = "recipient_ref = %(recipient)s", recipient
    if event_id is not None:
        intents = [row.id for row in rows(session, INTENTS_OF_EVENT, tenant=tenant_id, event=event_id)]
        wanted, params["intents"] = f"{wanted} AND intent_id = ANY(%(intents)s::uuid[])", intents
    found = rows(session, ITEMS.format(wanted=wanted), **params)
    items = found[:limit]
    last = items[-1].position if items else start
    return HistoryPage(items, f"{state.epoch}.{last}", len(found) > limit, state.complete_until)


def read_cursor(cursor: str | None, *, epoch: int) -> int:
    """Read a cursor's position; the start for None."""
    if cursor is None:
        return 0
    ours, _, position = cursor.partition(".")
    if not (cursor.isascii() and ours.isdecimal() and position.isdecimal() and len(cursor) <= 40) or int(ours) != epoch:  # noqa: PLR2004 - two bigints
        raise UnknownCursor("this cursor cannot be followed: read again from the start")
    return int(position)
