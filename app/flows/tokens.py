"""Tokens of one window: taken immediately before prepare, void a second later, given back where nothing is sent with them.

What prepare refuses gives its token back. A token that grew old while prepare ran is not written with:
another one is taken before the carrier is called, and the transport's look at the clock has the last word.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from app import limits
from app.ground.ids import AttemptId, Lease
from app.ground.log import log
from app.ledger.observe import Told
from app.ledger.prepare import Handoff
from app.ledger.routes import Route
from app.limits import Ask, Bucket, LimitsUnreachable, Mark, Said, Terms
from policy.rates import CountedIn
from policy.states import AttemptState
from policy.words import Reason

REDIS_AWAY_FOR: Final = timedelta(seconds=5)
CONNECTING_SECONDS: Final = 0.2
"""What may lie between the look at a token and the first byte: a connection, and its TLS. A token with less left is replaced."""
ASK_AGAIN_SECONDS: Final = 0.5


@dataclass(slots=True)
class Tokens:
    """The tokens of one window, from their taking until the last one was used or given back."""

    route: Route
    lease: Lease
    terms: Terms
    taken_at: float = field(default_factory=limits.clock)
    """CLOCK_BOOTTIME in seconds, read before Redis is asked: no token is older than it says."""
    said: Mapping[AttemptId, Said] = field(default_factory=dict)

    def take(self, attempt_ids: Sequence[AttemptId]) -> None:
        """Take a token for each, as far as they go; without Redis there are none."""
        try:
            said = limits.take(self._buckets, [self._ask(i) for i in attempt_ids], lease=self.lease)
        except LimitsUnreachable as error:
            self._say_unreachable(error)
            said = [Said(taken=False, reason=Reason.LIMITS_UNREACHABLE, wait=REDIS_AWAY_FOR)] * len(attempt_ids)
        self.said = dict(zip(attempt_ids, said, strict=True))

    @property
    def taken(self) -> list[AttemptId]:
        """Name those that may be prepared."""
        return [i for i, said in self.said.items() if said.taken]

    @property
    def refused(self) -> dict[AttemptId, Said]:
        """Name the others, with the reason and the time to wait."""
        return {i: said for i, said in self.said.items() if not said.taken}

    def settle(self, handoffs: Sequence[Handoff]) -> None:
        """Give back what will not be used, and mark the people of what was prepared."""
        used = {handoff.attempt_id for handoff in handoffs}
        unused = sum(self._ask(i).cost for i in self.taken if i not in used)
        marks = [
            Mark(ask, handoff.slot_for, handoff.told_for)
            for handoff in handoffs
            if (ask := self._ask(handoff.attempt_id)).holder and (handoff.slot_for or handoff.told_for)
        ]
        try:
            if unused:
                age_seconds = limits.clock() - self.taken_at
                limits.give_back(self._buckets, unused, age_seconds=age_seconds)
                log.info("tokens_given_back", count=unused, age_seconds=round(age_seconds, 3), lease=self.lease)
            limits.mark(marks, lease=self.lease)
        except LimitsUnreachable as error:
            self._say_unreachable(error)

    def valid_until(self, handoff: Handoff) -> float:
        """Say until when (CLOCK_BOOTTIME) a handoff may be written; wait for another token where its own is about to be void.

        That happens where prepare, or a whole window on a busy machine, took about a second. The old token is lost: by
        now the bucket has gained as much.
        """
        until = self.taken_at + limits.VOID_AFTER_SECONDS
        while until < limits.clock() + CONNECTING_SECONDS and limits.clock() < handoff.deadline:
            asked_at = limits.clock()
            wait = self._take_another(self._ask(handoff.attempt_id).cost)
            if wait is None:
                until = asked_at + limits.VOID_AFTER_SECONDS
                log.info("token_replaced", attempt_id=str(handoff.attempt_id), lease=self.lease)
            else:
                time.sleep(max(0.0, min(wait, handoff.deadline - limits.clock())))
        return min(until, handoff.deadline)

    def unmark(self, told: Collection[Told]) -> None:
        """Take the marks down of what failed: whether that freed the slot or not, the gate is asked."""
        failed = [self._ask(t.attempt_id) for t in told if t.state is AttemptState.FAILED]
        try:
            limits.unmark([ask for ask in failed if ask.holder])
        except LimitsUnreachable as error:
            self._say_unreachable(error)

    @property
    def _buckets(self) -> list[Bucket]:
        lane, own = self.terms.lane, self.terms.tenant_rate
        buckets = [Bucket.of_route(self.route.id, self.route.rate, lane)]
        return [*buckets, Bucket.of_tenant(self.route.tenant_id, own, lane)] if own else buckets

    def _ask(self, attempt_id: UUID) -> Ask:
        ask = self.terms.asks.get(attempt_id, Ask())
        if self.route.counted_in is CountedIn.SEGMENTS:
            return ask
        return Ask(1, ask.person, ask.category, ask.holder)

    def _take_another(self, cost: int) -> float | None:
        """Take one more token; give the seconds to wait where there is none."""
        try:
            (said,) = limits.take(self._buckets, [Ask(cost)])
        except LimitsUnreachable as error:
            self._say_unreachable(error)
            return ASK_AGAIN_SECONDS
        return None if said.taken else said.wait.total_seconds()

    def _say_unreachable(self, error: LimitsUnreachable) -> None:
        log.warning("limits_unreachable", route_id=str(self.route.id), cause=str(error))
