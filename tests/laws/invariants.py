"""What must hold of the model after every step: section 3 of the design, as questions to the whole state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.laws.model import CAP, COOLDOWN, MAX_ATTEMPTS, NOT_TAKEN, RANKS, WAITED, Attempt, Intent, Model


class Watch:
    """Look at a model after each step; it remembers what it saw, since some invariants speak of change."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.states: dict[Attempt, str] = {}
        self.closed: dict[Intent, int] = {}
        self.followed: set[Attempt] = set()
        """Attempts whose coming was looked at: what was known then is what counts."""
        self.stopped_at: int | None = None

    def breaches(self) -> list[str]:
        """Name what does not hold."""
        m = self.model
        found = [b for a in m.attempts for b in self._of_attempt(a)]
        found += [b for i in m.intents for b in self._of_intent(i)]
        found += self._of_keys()
        self.stopped_at = m.now if m.mark is not None and self.stopped_at is None else self.stopped_at
        return found

    def _of_attempt(self, a: Attempt) -> Iterator[str]:
        before, state = self.states.get(a, "queued"), a.state
        if before != state:
            yield from self._of_change(a, before)
            self.states[a] = state
        if a.sent > 1 or a.prepared > 1:
            yield f"4: {a.name} was handed off twice"
        if a.sent and a.prepared_at is None:
            yield f"3: {a.name} was sent and never prepared"
        if a.heard and state != max((r.state for r in a.heard), key=RANKS.__getitem__):
            yield f"5: {a.name} is not the join of what was heard"
        if (state == "queued") != (a in self.model.rows):
            yield f"8: {a.name} is {state}, and its outbox row says otherwise"
        asked = state in {"prepared", "submitted"} or (state == "unknown" and a.horizon > self.model.now)
        if asked and a.check is None:
            yield f"8: nobody asks about {a.name}"
        if state == "failed" and all(r.source == "reconcile" for r in a.heard):
            yield f"7: {a.name} failed by silence"

    def _of_change(self, a: Attempt, before: str) -> Iterator[str]:
        if before in RANKS and RANKS.get(a.state, -1) < RANKS[before]:
            yield f"5: {a.name} went from {before} to {a.state}"
        if before not in RANKS and before not in {"queued", a.state}:
            yield f"6: {a.name} was {before} and went on"
        if before == "queued" and a.prepared_at == self.model.now and a.state in RANKS:
            yield from self._of_handoff(a)

    def _of_handoff(self, a: Attempt) -> Iterator[str]:
        intent = a.intent
        if intent in self.closed or intent.event.expires <= self.model.now:
            yield f"6: {a.name} was prepared after its end"
        if self.stopped_at is not None:
            yield f"10: {a.name} was prepared after a STOP"
        for other in self.model.attempts:
            if other.intent.event.key == intent.event.key or other.prepared_at is None or other is a:
                continue
            if other.prepared_at + COOLDOWN > self.model.now and not _freed(other):
                yield f"10: {a.name} is inside the cooldown of {other.name}"
            if self.model.rules.capped and other.prepared_at + CAP[1] > self.model.now and not _freed(other):
                yield f"10: {a.name} is one too many beside {other.name}"

    def _of_intent(self, i: Intent) -> Iterator[str]:
        m, attempts = self.model, i.attempts
        if sum(a.state in {"queued", "prepared"} for a in attempts) > 1:
            yield f"4: two attempts of {i.event.number} may go out"
        for before, after in pairwise(attempts):
            if after not in self.followed:
                self.followed.add(after)
                yield from self._of_following(before, after)
        by_rule = [a for a in attempts if a.prepared_at is not None and a.error not in NOT_TAKEN and a.allowed != "person"]
        if len(by_rule) > MAX_ATTEMPTS:
            yield f"7: {i.event.number} was tried more often than the policy allows"
        if (i.closed or i.asked) and len(attempts) > self.closed.setdefault(i, len(attempts)):
            yield f"6: {i.event.number} got an attempt after its close"
        if i.closed:
            if not i.reason:
                yield f"8: {i.event.number} closed without a reason"
            if any(a in m.rows for a in attempts):
                yield f"6: {i.event.number} is closed and due"
            return
        yield from self._of_open(i)

    def _of_following(self, before: Attempt, after: Attempt) -> Iterator[str]:
        """Look at an attempt in the step that made it: what let it follow the one before."""
        rules, failed = self.model.rules, before.state == "failed"
        missed = before.missing >= 2 and not before.taken and rules.not_found == "resend"
        begun = before.prepared_at if before.prepared_at is not None else self.model.now
        silent = before.is_silent and rules.waited == "resend" and self.model.now >= begun + WAITED
        allowed = {
            "retry": failed,
            "not_found": missed,
            "waited": silent and before.state == "unknown",
            "person": before in self.model.asked_for,
        }
        if not allowed.get(after.allowed or "", False):
            yield f"7: {after.name} follows {before.name}, and no rule allowed it"
        if after.route != before.route and (before.taken or not failed):
            yield f"7: {after.name} went another way than {before.name}, which may have been taken"

    def _of_open(self, i: Intent) -> Iterator[str]:
        """Due, leased, waiting on a next check, or in review. A question to a person may be open while we go on asking."""
        m, last = self.model, i.attempts[-1]
        row, asked = m.rows.get(last), last in m.reviews
        if row is not None and (row.due > m.now + 10**9) != asked:
            yield f"8: {i.event.number} is parked without a review, or due with one"
        if row is None and last.check is None and not asked:
            yield f"8: {i.event.number} is nowhere"
        if row is not None and last.check is not None:
            yield f"8: {i.event.number} is due and asked about"
        if not i.holds or m.holders.get(i.event.key) is not i:
            yield f"2: {i.event.number} is open without its key"

    def _of_keys(self) -> Iterator[str]:
        m = self.model
        for e in m.events:
            if e.intent is None and not e.cancelled and e.expires > m.now and e.key not in m.holders:
                yield f"8: event {e.number} waits for nobody"
        for i in m.intents:
            if i.holds and m.holders.get(i.event.key) is not i:
                yield f"2: two intents hold the key of {i.event.number}"


def _freed(a: Attempt) -> bool:
    """Whether it certainly was not taken, as far as was known when it failed."""
    for r in a.heard:
        if r.has_it:
            return False
        if r.state == "failed":
            return True
    return False
