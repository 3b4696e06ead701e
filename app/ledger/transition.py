"""Record changes of the public state: the transition, the intent's projection, the feed's pending id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Statement, as_page, insertion, run_together
from app.ground.ids import new_id
from app.ledger.books import Books
from models.ledger import Transition
from models.work import FeedPending
from policy.states import IntentState, PublicState

# A change that does not speak for its intent (an older attempt's late word) is counted all the same.
# What is closed keeps a reason, also when a carrier says of a cancelled attempt that it has it.
PROJECT = """
UPDATE intent i
SET transition_count = n.n, state = coalesce(n.state, i.state),
    reason = CASE WHEN n.state IS NULL THEN i.reason WHEN i.closed_at IS NULL THEN n.reason ELSE coalesce(n.reason, i.reason) END,
    next_at = CASE WHEN n.state IS NULL THEN i.next_at ELSE n.next_at END
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (id uuid, n bigint, state text, reason text, next_at timestamptz) LIMIT %(count)s) n
WHERE i.id = n.id
"""

INTENT_STATES = {
    PublicState.QUEUED: IntentState.QUEUED,
    PublicState.DEFERRED: IntentState.DEFERRED,
    PublicState.HANDED_OFF: IntentState.IN_FLIGHT,
    PublicState.DELIVERED: IntentState.DELIVERED,
    PublicState.FAILED: IntentState.FAILED,
    PublicState.UNKNOWN: IntentState.UNKNOWN,
    PublicState.SUPPRESSED: IntentState.SUPPRESSED,
    PublicState.EXPIRED: IntentState.EXPIRED,
    PublicState.CANCELLED: IntentState.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Change:
    """One change of what the public reads about one attempt."""

    intent_id: UUID
    attempt_id: UUID
    event_id: UUID
    tenant_id: UUID
    recipient_ref: str
    n: int
    from_state: PublicState | None
    state: PublicState
    reason: str | None
    next_at: datetime | None
    cause: str
    """acceptance, dispatch, answer, receipt, poll, lookup, operator, reconcile."""
    cause_id: UUID | None
    speaks: bool = True
    """Whether it is the intent's own state now; an older attempt's late word is not."""


def waiting_state(intent: Any) -> PublicState:  # noqa: ANN401 - a locked row
    """Say what the public reads about an intent whose attempt has not left us."""
    return PublicState.DEFERRED if intent.state == IntentState.DEFERRED else PublicState.QUEUED


def change_of(
    books: Books,
    attempt_id: UUID,
    intent: Any,  # noqa: ANN401 - a locked row
    state: PublicState,
    *,
    before: PublicState | None,
    reason: str | None,
    cause: str,
    cause_id: UUID | None,
    next_at: datetime | None = None,
    speaks: bool = True,
) -> Change:
    """Lay out the next change of a locked intent, counted under its lock."""
    return Change(
        intent_id=intent.id,
        attempt_id=attempt_id,
        event_id=intent.event_id,
        tenant_id=intent.tenant_id,
        recipient_ref=intent.recipient_ref,
        n=books.next_n(intent.id),
        from_state=before,
        state=state,
        reason=reason,
        next_at=next_at,
        cause=cause,
        cause_id=cause_id,
        speaks=speaks,
    )


def record(session: Session, changes: Sequence[Change], *, now: datetime) -> None:
    """Write transitions in one round trip; the caller holds the intents' locks and counted `n` under them."""
    run_together(session, recording(changes, now=now))


def recording(changes: Sequence[Change], *, now: datetime) -> list[Statement]:
    """Give the statements of `record`, for a pipeline that writes more."""
    if not changes:
        return []
    ours = sorted(changes, key=lambda c: (c.intent_id, c.n))
    last = {c.intent_id: c.n for c in ours}
    spoken = {c.intent_id: c for c in ours if c.speaks}
    transitions = [
        {
            "id": new_id(),
            "tenant_id": c.tenant_id,
            "event_id": c.event_id,
            "intent_id": c.intent_id,
            "attempt_id": c.attempt_id,
            "n": c.n,
            "from_state": c.from_state,
            "state": c.state,
            "reason": c.reason,
            "next_at": c.next_at,
            "cause": c.cause,
            "cause_id": c.cause_id,
            "at": now,
        }
        for c in ours
    ]
    pending = [
        {"transition_id": t["id"], "intent_id": c.intent_id, "n": c.n, "tenant_id": c.tenant_id, "recipient_ref": c.recipient_ref}
        for t, c in zip(transitions, ours, strict=True)
    ]
    projections = [_projection(intent_id, n, spoken.get(intent_id)) for intent_id, n in last.items()]
    return [
        (PROJECT, as_page(projections)),
        insertion(Transition, transitions),
        insertion(FeedPending, pending),
    ]


def _projection(intent_id: UUID, n: int, spoken: Change | None) -> dict[str, Any]:
    if spoken is None:
        return {"id": intent_id, "n": n}
    state = INTENT_STATES[spoken.state]
    return {"id": intent_id, "n": n, "state": state, "reason": spoken.reason, "next_at": spoken.next_at}
