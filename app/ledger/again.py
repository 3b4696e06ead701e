"""Another attempt of an intent: never a rewritten one, and due like any other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, run_together
from app.ground.ids import new_id
from app.ledger.books import Books
from app.ledger.close import SETTLE_REVIEWS
from app.ledger.open import attempt_row
from app.ledger.transition import Change, change_of
from models.ledger import Attempt
from models.work import Outbox
from policy.states import PublicState
from policy.words import Lane, Reason, Source


@dataclass(frozen=True, slots=True)
class Again:
    """One further attempt: its row, its place in the outbox, and the change that history tells."""

    attempt: dict[str, Any]
    outbox: dict[str, Any]
    change: Change

    @classmethod
    def after(
        cls,
        books: Books,
        intent: Any,  # noqa: ANN401 - a locked row
        before: Any,  # noqa: ANN401 - a locked row
        *,
        lane: Lane,
        not_before: datetime,
        action_id: UUID | None,
        now: datetime,
    ) -> Again:
        """Lay out the attempt that follows `before`, with the text as it was counted at acceptance; `action_id`: a person's."""
        attempt_id = new_id()
        common = {"tenant_id": intent.tenant_id, "event_id": intent.event_id, "intent_id": intent.id}
        attempt = attempt_row(common, attempt_id, ordinal=before.ordinal + 1, route_id=before.route_id, now=now)
        attempt |= {
            "body_hash": bytes(before.body_hash),
            "hash_key_id": before.hash_key_id,
            "encoding": before.encoding,
            "segment_count": before.segment_count,
            "price": None if before.price is None else str(before.price),
            "currency": before.currency,
        }
        outbox = {
            "attempt_id": attempt_id,
            **common,
            "lane": lane,
            "route_id": before.route_id,
            "due_at": not_before,
            "reason": Reason.RETRY,
            "decision_id": before.decision_id,
            "held_at": None,
            "gate_seen_at": None,
            "lease": None,
            "leased_until": None,
            "lost_lease_count": 0,
        }
        change = change_of(
            books,
            attempt_id,
            intent,
            PublicState.DEFERRED,
            before=None,
            reason=Reason.RETRY,
            cause=Source.RECONCILE if action_id is None else Source.OPERATOR,
            cause_id=action_id,
            next_at=not_before,
        )
        return cls(attempt, outbox, change)


def write_again(session: Session, retries: Sequence[Again], *, now: datetime) -> None:
    """Write further attempts. What is tried again is due, and no question any more: never both."""
    ids = sorted(again.attempt["intent_id"] for again in retries)
    statements = [
        insertion(Attempt, [again.attempt for again in retries]),
        insertion(Outbox, [again.outbox for again in retries]),
        (SETTLE_REVIEWS, {"ids": ids, "now": now}),
    ]
    run_together(session, statements)
