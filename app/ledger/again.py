"""Another attempt of an intent: what allows it, by which route, and its rows. Never a rewritten one, and due like any other."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, run_together
from app.ground.ids import new_id
from app.ledger.books import Books
from app.ledger.close import SETTLE_REVIEWS
from app.ledger.heard import Heard, Standing
from app.ledger.open import attempt_row
from app.ledger.transition import Change, change_of
from app.ledger.ways import read_ways
from models.ledger import Attempt
from models.work import Outbox
from policy.categories import CategoryRules
from policy.retry import Ended, Retry, Way, may_fail_over, may_resend, may_retry, next_way
from policy.states import AttemptState, PublicState
from policy.words import LANES, AllowedBy, Category, ErrorClass, Lane, Reason, Source


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
        allowed_by: AllowedBy,
        route_id: UUID | None = None,
        action_id: UUID | None = None,
        now: datetime,
    ) -> Again:
        """Lay out the attempt that follows `before`, by its route unless told another, with the text as it was counted then.

        `action_id` is that of the person who asked for it.
        """
        attempt_id = new_id()
        route_id = route_id or before.route_id
        common = {"tenant_id": intent.tenant_id, "event_id": intent.event_id, "intent_id": intent.id}
        attempt = attempt_row(common, attempt_id, ordinal=before.ordinal + 1, route_id=route_id, now=now)
        attempt |= {
            "allowed_by": allowed_by,
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
            "route_id": route_id,
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


@dataclass(slots=True)
class Further:
    """The further attempts of one transaction: each allowed by the rules that admitted the one before it."""

    session: Session
    books: Books
    heard: Mapping[UUID, Heard]
    now: datetime
    attempts: list[Again] = field(default_factory=list)
    _ways: Mapping[UUID, Sequence[Way]] = field(default_factory=dict)

    def look_for_ways(self, rules: Mapping[UUID, CategoryRules]) -> None:
        """Read where another attempt may go, after those failures whose rules let it go elsewhere."""
        ids = [i for i, h in self.heard.items() if i in rules and _may_fail_over(h, rules[i])]
        self._ways = read_ways(self.session, ids, now=self.now) if ids else {}

    def retry(self, intent: Any, last: Heard, rules: CategoryRules) -> bool:  # noqa: ANN401 - a locked row
        """Try again what failed for certain, if the rules allow it; say whether they do."""
        wait = last.applied[-1].retry_after_seconds
        elsewhere = self._elsewhere(last.attempt)
        answer = may_retry(
            rules.retry,
            ended=self._ended(intent.id),
            accepted_at=intent.accepted_at,
            expires_at=intent.expires_at,
            retry_after=timedelta(seconds=wait) if wait is not None else None,
            jitter=random.random(),  # noqa: S311 - spreads retries, guards nothing
            now=self.now,
            elsewhere=elsewhere is not None,
        )
        if isinstance(answer, Retry):
            self.add(intent, last.attempt, rules, answer.not_before, allowed_by=AllowedBy.RETRY, route_id=elsewhere)
        return isinstance(answer, Retry)

    def resend(self, intent: Any, before: Any, rules: CategoryRules, allowed_by: AllowedBy) -> bool:  # noqa: ANN401 - locked rows
        """Let another attempt follow one in doubt, as its rule says; say whether the maximum and the clocks allow it."""
        if intent.close_requested_at is not None:
            return False
        answer = may_resend(
            rules.retry,
            ended=self._ended(intent.id),
            accepted_at=intent.accepted_at,
            expires_at=intent.expires_at,
            now=self.now,
        )
        if isinstance(answer, Retry):
            self.add(intent, before, rules, answer.not_before, allowed_by=allowed_by)
        return isinstance(answer, Retry)

    def add(
        self,
        intent: Any,  # noqa: ANN401 - a locked row
        before: Any,  # noqa: ANN401 - a locked row
        rules: CategoryRules | None,
        not_before: datetime,
        *,
        allowed_by: AllowedBy,
        route_id: UUID | None = None,
        action_id: UUID | None = None,
    ) -> None:
        """Give a locked intent another attempt after `before`, due from `not_before` on."""
        again = Again.after(
            self.books,
            intent,
            before,
            lane=(rules.lane if rules else None) or LANES[Category(intent.category)],
            not_before=not_before,
            allowed_by=allowed_by,
            route_id=route_id,
            action_id=action_id,
            now=self.now,
        )
        self.attempts.append(again)

    def _elsewhere(self, attempt: Any) -> UUID | None:  # noqa: ANN401 - a locked row
        """Choose another route for what follows an attempt; None: it stays with its own."""
        used = {a.route_id for a in self.books.attempts_of(attempt.intent_id)}
        return next_way(self._ways.get(attempt.id, ()), last=attempt.route_id, used=used)

    def _ended(self, intent_id: UUID) -> list[Ended]:
        """Say how each attempt of an intent that went out ended, the oldest first."""
        stands = [Standing.of(a, self.heard.get(a.id)) for a in self.books.attempts_of(intent_id)]
        return [Ended(_class_of(s)) for s in stands if s.state in {AttemptState.FAILED, AttemptState.UNKNOWN}]


def _class_of(stands: Standing) -> ErrorClass | None:
    if stands.state == AttemptState.UNKNOWN:
        return None
    return ErrorClass(stands.error_class or ErrorClass.UNCLASSIFIED)


def _may_fail_over(heard: Heard, rules: CategoryRules) -> bool:
    if heard.state is not AttemptState.FAILED or not heard.applied:
        return False
    error_class = heard.error_class or ErrorClass.UNCLASSIFIED
    return may_fail_over(rules.retry, error_class=error_class, taken=heard.taken, source=heard.applied[-1].source)


def write_again(session: Session, retries: Sequence[Again], *, now: datetime) -> None:
    """Write further attempts. What is tried again is due, and no question any more: never both."""
    ids = sorted(again.attempt["intent_id"] for again in retries)
    statements = [
        insertion(Attempt, [again.attempt for again in retries]),
        insertion(Outbox, [again.outbox for again in retries]),
        (SETTLE_REVIEWS, {"ids": ids, "now": now}),
    ]
    run_together(session, statements)
