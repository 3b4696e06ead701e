"""Close intents: before a handoff for good, after one as a request that touches future work only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.registry import CARRIERS
from app.ground.db import Statement, as_page, rows, run_together
from app.ground.ids import AttemptId
from app.ledger import state
from app.ledger.books import Books
from app.ledger.promote import promote_joined
from app.ledger.transition import Change, change_of, record, waiting_state
from policy.states import CLOSINGS, AttemptState, PublicState
from policy.words import NOT_TAKEN, Reason

CLEAR_OUTBOX = "DELETE FROM outbox WHERE attempt_id = ANY(%(ids)s::uuid[])"

# Compare-and-set: the first close wins, and what was handed off keeps its key.
CLOSE_INTENTS = """
UPDATE intent i SET closed_at = %(now)s, holds_key = n.holds_key, reason = n.reason
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (id uuid, holds_key boolean, reason text) LIMIT %(count)s) n
WHERE i.id = n.id AND i.closed_at IS NULL
RETURNING i.id, i.holds_key
"""

REQUEST_CLOSE = """
UPDATE intent i SET close_requested_at = %(now)s, close_request = n.reason
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (id uuid, reason text) LIMIT %(count)s) n
WHERE i.id = n.id AND i.close_requested_at IS NULL
RETURNING i.id
"""

# Nobody waits for the answer any more, so nobody asks for it before the horizon; receipts keep
# flowing. A prepared attempt keeps its deadline.
STOP_CHECKING = """
UPDATE attempt SET next_check_at = horizon_at
WHERE intent_id = ANY(%(ids)s::uuid[]) AND state IN ('submitted', 'unknown') AND next_check_at IS NOT NULL
"""

# The wish to have it dropped is kept with the close: whoever asks the carrier does so after the commit. A
# `prepared` one has no id to ask by yet.
ASK_CARRIERS = """
INSERT INTO carrier_cancel (attempt_id, tenant_id, intent_id, route_id, requested_at, ask_at, ask_count)
SELECT a.id, a.tenant_id, a.intent_id, a.route_id, %(now)s::timestamptz, %(now)s::timestamptz, 0
FROM attempt a JOIN route r ON r.id = a.route_id
WHERE a.intent_id = ANY(%(ids)s::uuid[]) AND a.state IN ('prepared', 'submitted', 'unknown') AND r.carrier = ANY(%(cancelling)s)
ORDER BY a.id
ON CONFLICT DO NOTHING
"""
CANCELLING = sorted(name for name, adapter in CARRIERS.items() if adapter.capabilities.cancels)

# A question that an outcome has answered is no longer open; that two attempts went out stays one.
SETTLE_REVIEWS = """
UPDATE review SET settled_at = %(now)s, settled_as = 'heard'
WHERE intent_id = ANY(%(ids)s::uuid[]) AND settled_at IS NULL AND cause <> 'second_handoff'
"""


@dataclass(frozen=True, slots=True)
class Closing:
    """A wish to close one intent: how, why, and what caused it."""

    intent_id: UUID
    state: AttemptState
    """suppressed, expired or cancelled."""
    reason: str
    cause: str
    cause_id: UUID | None = None


@dataclass(slots=True)
class Closed:
    """What became of the closings."""

    closed: set[UUID] = field(default_factory=set)
    requested: set[UUID] = field(default_factory=set)
    """Already handed off: the close is kept as a request."""


def was_taken(attempt: Any) -> bool:  # noqa: ANN401 - a locked attempt row
    """Say whether an attempt went, or may have gone, past our control."""
    before = {AttemptState.QUEUED, *CLOSINGS}
    return attempt.state not in before and (attempt.taken or attempt.error_class not in NOT_TAKEN)


def close_intents(session: Session, books: Books, closings: Sequence[Closing], *, now: datetime) -> Closed:
    """Close these locked intents; those that were handed off keep the request instead."""
    closed = Closed()
    open_ones = {c.intent_id: c for c in closings if (i := books.intents.get(c.intent_id)) and i.closed_at is None}
    queued = {i: a for i in open_ones for a in books.attempts_of(i) if a.state == AttemptState.QUEUED}
    done = state.close(session, [(AttemptId(a.id), open_ones[i].state) for i, a in queued.items()], now=now) if queued else set()
    ending = {i: open_ones[i] for i, a in queued.items() if a.id in done}
    if ending:
        rows(session, CLEAR_OUTBOX, ids=sorted(done))
        record(session, [_change(books, c, queued[i].id) for i, c in ending.items()], now=now)
        end_intents(session, books, {i: c.reason for i, c in ending.items()}, now=now)
        closed.closed = set(ending)
    asked = {i: c for i, c in open_ones.items() if i not in ending}
    if asked:
        run_together(session, _requesting(asked, now=now))
        closed.requested = set(asked)
    return closed


def _requesting(asked: Mapping[UUID, Closing], *, now: datetime) -> list[Statement]:
    """Keep closes as requests; what the application took back, the carrier is asked to drop."""
    new = as_page([{"id": i, "reason": asked[i].reason} for i in sorted(asked)])
    requesting: list[Statement] = [(REQUEST_CLOSE, {**new, "now": now}), (STOP_CHECKING, {"ids": sorted(asked)})]
    cancelled = sorted(i for i, c in asked.items() if c.state is AttemptState.CANCELLED)
    if cancelled:
        requesting.append((ASK_CARRIERS, {"ids": cancelled, "cancelling": CANCELLING, "now": now}))
    return requesting


def end_intents(session: Session, books: Books, reasons: Mapping[UUID, str], *, now: datetime) -> None:
    """Mark locked intents closed; where nothing was handed off, free the key for the newest event that joined."""
    ids = sorted(reasons)
    taken = {i: any(was_taken(a) for a in books.attempts_of(i)) for i in ids}
    new = as_page([{"id": i, "holds_key": taken[i], "reason": reasons[i]} for i in ids])
    freed, _ = run_together(session, [(CLOSE_INTENTS, {**new, "now": now}), (SETTLE_REVIEWS, {"ids": ids, "now": now})])
    promote_joined(session, [row.id for row in freed if not row.holds_key], now=now)


def _change(books: Books, closing: Closing, attempt_id: UUID) -> Change:
    intent = books.intents[closing.intent_id]
    return change_of(
        books,
        attempt_id,
        intent,
        PublicState(closing.state.value),
        before=waiting_state(intent),
        reason=closing.reason,
        cause=closing.cause,
        cause_id=closing.cause_id,
    )


def cancel_intents(session: Session, books: Books, intent_ids: Iterable[UUID], *, cause_id: UUID | None, now: datetime) -> Closed:
    """Cancel locked intents."""
    closings = [Closing(i, AttemptState.CANCELLED, Reason.CANCELLED, "operator", cause_id) for i in intent_ids]
    return close_intents(session, books, closings, now=now)
