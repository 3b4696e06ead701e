"""The design's section 4 and 6 in memory: one person's intents, one or two routes, one clock. It knows no code of ours.

Times are whole seconds. Every method is one transaction: a crash between two of them is a method that
is not called. The sizes (cooldown, back-off, ...) are those of the house that `real.py` builds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

NEVER: Final = 1 << 60
RANKS: Final = {"prepared": 0, "submitted": 1, "unknown": 2, "failed": 3, "delivered": 4}
PUBLIC: Final = {"submitted": "in_flight", "unknown": "unknown", "failed": "failed", "delivered": "delivered"}
NOT_TAKEN: Final = ("not_handed_off", "throttled", "auth_config")
MAX_AGE: Final = 86_400
COOLDOWN: Final = 600
LEASE: Final = 60
DEADLINE: Final = 15
ANSWER_WITHIN: Final = 10
HORIZON: Final = 3600
SETTLING: Final = 600
SHORTEST: Final = 60
"""The least validity that the carrier which cannot be asked (Kannel) takes."""
FIRST_CHECK: Final = 15
LONGEST_CHECK: Final = 1800
CLAIMED_FOR: Final = 60
MAX_ATTEMPTS: Final = 3
BACKOFF: Final = (30, 2, 600)
RETRY_WINDOW: Final = 21_600
WAITED: Final = 1800
CAP: Final = (1, 1500)
"""So many handoffs for other reasons within so many seconds."""
STOPPED_FOR: Final = 60

Name = tuple[int, int]
"""Which event's intent, and which attempt of it, counted from one."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How the history's house is set up."""

    not_found: str = "review"
    """resend, review or close."""
    horizon: str = "review"
    """review or close."""
    asks: bool = True
    """Whether the carrier can be asked (polls, conclusive look-ups)."""
    waited: str | None = None
    """What follows silence: resend, review, close, or nothing ever."""
    fails_over: bool = False
    """Whether there is a second route, and what was not taken goes by it."""
    capped: bool = False
    late: bool = False
    """Whether also what bounced late is tried again."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Give what is tried again besides what was not taken."""
        return ("transient", "bounced_late") if self.late else ("transient",)

    @property
    def routes(self) -> tuple[int, ...]:
        """Number the routes by their priority."""
        return (0, 1) if self.fails_over else (0,)


@dataclass(frozen=True, slots=True)
class Report:
    """One thing heard about one attempt, under its own number."""

    number: int
    state: str
    error: str | None = None
    reason: str | None = None
    remote: bool = False
    retry_after: int | None = None
    source: str = "receipt"

    @property
    def may_arrive(self) -> bool:
        """Whether it means that the message may still arrive, or did; a repeated failure does not."""
        return self.state in {"submitted", "delivered"}

    def is_older_than_the_end_of(self, attempt: Attempt) -> bool:
        """Whether it is the carrier's acceptance, stored after its later word that the message failed."""
        later = any(r.state == "failed" and r.source in {"receipt", "poll", "lookup"} for r in attempt.heard)
        return (self.state, self.source) == ("submitted", "answer") and attempt.state == "failed" and later

    @property
    def has_it(self) -> bool:
        """Whether it means that the carrier has, or had, the message."""
        return self.remote or self.state in {"submitted", "delivered"}


@dataclass(slots=True, eq=False)
class Attempt:
    """One dispatch of an intent."""

    intent: Intent
    ordinal: int
    number: int
    route: int
    created: int
    allowed: str | None
    state: str = "queued"
    taken: bool = False
    error: str | None = None
    prepared_at: int | None = None
    deadline: int = 0
    horizon: int = 0
    check: int | None = None
    checks: int = 0
    missing: int = 0
    unheard: int | None = None
    """When the rule answers that waits for a word."""
    remote: bool = False
    sent: int = 0
    """Calls to the carrier that may have written a byte."""
    prepared: int = 0
    """How often somebody was allowed to call."""
    heard: list[Report] = field(default_factory=list)

    @property
    def name(self) -> Name:
        """What both worlds call it."""
        return self.intent.event.number, self.ordinal

    @property
    def is_silent(self) -> bool:
        """Whether nothing was ever heard of it but our own attempt to hand it off."""
        return not self.taken and not self.remote and all(r.source in {"answer", "reconcile"} for r in self.heard)

    @property
    def past_prepared(self) -> bool:
        """Whether it went, or may have gone, past our control."""
        if self.state in {"queued", "suppressed", "expired", "cancelled"}:
            return False
        return self.taken or self.error not in NOT_TAKEN


@dataclass(slots=True, eq=False)
class Event:
    """One accepted fact."""

    number: int
    key: int
    accepted: int
    expires: int
    intent: Intent | None = None
    cancelled: bool = False


@dataclass(slots=True, eq=False)
class Intent:
    """One wish; it carries its event's clocks."""

    event: Event
    state: str = "queued"
    reason: str | None = None
    closed: bool = False
    asked: bool = False
    """A close was requested after the handoff."""
    holds: bool = True
    attempts: list[Attempt] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Row:
    """An outbox row."""

    due: int
    lease: int | None = None
    until: int = 0
    lost: int = 0
    seen: int | None = None
    """The gate's mark that the decision in force saw."""
    decided: int = 0
    ends: int = NEVER
    """Until when the decision in force holds."""


class Model:
    """One person's books, and what is on its way to the carrier and back."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.now = 0
        self.events: list[Event] = []
        self.intents: list[Intent] = []
        self.attempts: list[Attempt] = []
        self.rows: dict[Attempt, Row] = {}
        self.holders: dict[int, Intent] = {}
        self.reviews: dict[Attempt, str] = {}
        self.slot: tuple[int, int, Attempt] | None = None
        self.contacted: list[tuple[int, Attempt]] = []
        """The handoffs that the cap counts, each key once: its key, and the attempt."""
        self.mark: int | None = None
        self.stopped: set[int] = set()
        self.asked_for: set[Attempt] = set()
        """In doubt, and a person wanted another one."""
        self.leases = 0

    def attempt(self, name: Name) -> Attempt:
        """Find an attempt by its name."""
        intent = self.events[name[0]].intent
        assert intent is not None
        return intent.attempts[name[1] - 1]

    # Acceptance and closing.

    def accept(self, key: int, lives: int) -> None:
        """Accept an event: it joins who holds the key, or opens an intent."""
        event = Event(len(self.events), key, self.now, self.now + lives)
        self.events.append(event)
        if key not in self.holders:
            self._open(event)

    def _open(self, event: Event) -> Intent:
        intent = event.intent = Intent(event)
        self.intents.append(intent)
        attempt = self._attempt(intent)
        state, reason, at = self._decide(intent)
        if state in {"suppressed", "expired"}:
            attempt.state = intent.state = state
            intent.reason, intent.closed, intent.holds = reason, True, False
            return intent
        self.holders[event.key] = intent
        if state == "deferred":
            intent.state, intent.reason = state, reason
        self.rows[attempt] = Row(at, seen=self.mark, decided=self.now)
        return intent

    def _attempt(self, intent: Intent, *, route: int = 0, allowed: str | None = None) -> Attempt:
        attempt = Attempt(intent, len(intent.attempts) + 1, len(self.attempts), route, self.now, allowed)
        intent.attempts.append(attempt)
        self.attempts.append(attempt)
        return attempt

    def _decide(self, intent: Intent) -> tuple[str, str | None, int]:
        """Ask what refuses first, what waits afterwards; what waits past the end is closed now."""
        if self.mark is not None:
            return "suppressed", "opted_out", 0
        ends = self._too_late_at(intent)
        if ends <= self.now:
            return "expired", "expired", 0
        reason, at = None, self.now
        if self.slot is not None and self.slot[0] != intent.event.key and self.slot[1] > self.now:
            reason, at = "cooldown", self.slot[1]
        free = self._free_at(intent.event.key)
        if free > at:
            reason, at = "frequency_cap", free
        if reason is None:
            return "allowed", None, self.now
        return ("expired", "would_expire", 0) if at >= ends else ("deferred", reason, at)

    def _free_at(self, key: int) -> int:
        limit, window = CAP
        counted = sorted(a.prepared_at or 0 for k, a in self.contacted if k != key)
        return counted[-limit] + window if self.rules.capped and len(counted) >= limit else 0

    def _too_late_at(self, intent: Intent) -> int:
        """Say when it is too late: what is tried again after a failure also has the retry window's end."""
        again = len(intent.attempts) > 1 and intent.attempts[-2].state == "failed"
        return min(intent.event.expires, intent.event.accepted + RETRY_WINDOW) if again else intent.event.expires

    def cancel(self, number: int) -> None:
        """Cancel an event: before the handoff for good, after it as a request."""
        event = self.events[number]
        event.cancelled = True
        if event.intent is not None and not event.intent.closed and not event.intent.asked:
            self._close([(event.intent, "cancelled", "cancelled")])

    def fill(self, key: int) -> None:
        """Call an occasion off: what is open is closed, or asked to; what waits to get its key never does."""
        ours = [e for e in self.events if e.key == key]
        for event in ours:
            event.cancelled = event.cancelled or event.intent is None
        self._close([(e.intent, "cancelled", "cancelled") for e in ours if e.intent is not None and not e.intent.closed])

    def call_off(self, key: int) -> None:
        """Cancel an occasion: all that was accepted for it, what joined as well, and nothing that comes later."""
        for event in self.events:
            event.cancelled = event.cancelled or event.key == key
        left = [i for i in self.intents if i.event.key == key and not i.closed and not i.asked]
        self._close([(intent, "cancelled", "cancelled") for intent in left])

    def expire(self) -> None:
        """Close what ran out of time and nobody has under a lease."""
        over = [a.intent for a, row in self.rows.items() if a.intent.event.expires <= self.now and not self._is_leased(row)]
        self._close([(intent, "expired", "expired") for intent in over])

    def _close(self, closings: Sequence[tuple[Intent, str, str]]) -> None:
        ended = []
        for intent, state, reason in closings:
            last = intent.attempts[-1]
            if last.state == "queued":
                last.state = intent.state = state
                intent.reason = reason
                del self.rows[last]
                ended.append((intent, reason))
                continue
            intent.asked = True
            for a in intent.attempts:
                if a.state in {"submitted", "unknown"} and a.check is not None:
                    a.check = a.horizon
        self._end(ended)

    def _end(self, ended: Iterable[tuple[Intent, str]]) -> None:
        freed = []
        for intent, reason in ended:
            if intent.closed:
                continue
            intent.closed, intent.reason = True, reason
            intent.holds = any(a.past_prepared for a in intent.attempts)
            self._settle_reviews(intent)
            if not intent.holds:
                del self.holders[intent.event.key]
                freed.append(intent.event.key)
        for key in sorted(freed):
            self._promote(key)

    def _promote(self, key: int) -> None:
        while key not in self.holders:
            waiting = [e for e in self.events if e.key == key and e.intent is None and not e.cancelled and e.expires > self.now]
            if not waiting:
                return
            self._open(max(waiting, key=lambda e: (e.accepted, e.number)))

    def _settle_reviews(self, intent: Intent) -> None:
        for a in intent.attempts:
            if self.reviews.get(a) not in {None, "second_handoff"}:
                del self.reviews[a]

    # Dispatch and prepare.

    def _is_leased(self, row: Row) -> bool:
        return row.lease is not None and row.until > self.now

    def dispatch(self) -> list[tuple[int, tuple[Name, ...]]]:
        """Lease what is due, route by route."""
        return [page for route in self.rules.routes if route not in self.stopped for page in self._dispatch(route)]

    def _dispatch(self, route: int) -> list[tuple[int, tuple[Name, ...]]]:
        """Lease what is due; rows that were lost twice alone, those lost five times not at all."""
        alone: list[Attempt] = []
        together: list[Attempt] = []
        closing: list[tuple[Intent, str, str]] = []
        due = [
            (max(r.due, r.until), a.number, a, r)
            for a, r in self.rows.items()
            if a.route == route and r.due <= self.now and not self._is_leased(r)
        ]
        for _, _, a, row in sorted(due, key=lambda d: d[:2]):
            lost = row.lost + (row.lease is not None)
            if lost >= 5:
                self._park(a, row)
                continue
            state, reason, at = self._decide(a.intent)
            row.seen, row.decided = self.mark, self.now
            if state == "deferred":
                row.due, row.lease, row.until = at, None, 0
                a.intent.state, a.intent.reason = state, reason
            elif state == "allowed":
                row.lost, row.ends = lost, self._too_late_at(a.intent)
                (alone if lost >= 2 else together).append(a)
            else:
                closing.append((a.intent, state, reason or ""))
        self._close(closing)
        return [self._lease(group) for group in [*([a] for a in alone), together] if group]

    def _park(self, attempt: Attempt, row: Row) -> None:
        row.due, row.lease, row.until = NEVER, None, 0
        self.reviews.setdefault(attempt, "lost_leases")
        attempt.intent.state, attempt.intent.reason = "deferred", "lost_leases"

    def _lease(self, group: Sequence[Attempt]) -> tuple[int, tuple[Name, ...]]:
        self.leases += 1
        for a in group:
            self.rows[a].lease, self.rows[a].until = self.leases, self.now + LEASE
        return self.leases, tuple(a.name for a in group)

    def prepare(self, lease: int, names: Iterable[Name]) -> list[Name]:
        """Admit what this lease still holds; all else goes back to be decided again. Say who may call."""
        admitted = []
        late: list[tuple[Intent, str, str]] = []
        for a in sorted(map(self.attempt, names), key=lambda a: a.number):
            row = self.rows.get(a)
            if row is None or row.lease != lease or row.until <= self.now:
                continue
            if self._is_held(a, row):
                row.due, row.lease, row.until, row.lost = self.now, None, 0, 0
                continue
            if not self.rules.asks and a.intent.event.expires - self.now < SHORTEST:
                late.append((a.intent, "expired", "would_expire"))
                continue
            self._begin(a)
            admitted.append(a.name)
        self._close(late)
        return admitted

    def _is_held(self, attempt: Attempt, row: Row) -> bool:
        event, slot = attempt.intent.event, self.slot
        cooling = slot is not None and slot[0] != event.key and slot[1] > self.now
        stopped = attempt.route in self.stopped
        uncounted = self.rules.capped and any(k != event.key and (a.prepared_at or 0) > row.decided for k, a in self.contacted)
        return min(event.expires, row.ends) <= self.now or stopped or self.mark != row.seen or cooling or uncounted

    def _begin(self, a: Attempt) -> None:
        key = a.intent.event.key
        until = self.now + COOLDOWN
        if self.slot is not None and self.slot[0] == key:
            until = max(until, self.slot[1])
        self.slot = (key, until, a)
        ends = min(self.rows.pop(a).ends, a.intent.event.expires)
        a.state, a.prepared_at, a.prepared = "prepared", self.now, a.prepared + 1
        a.deadline = min(self.now + DEADLINE, ends)
        a.check, a.horizon = self.now + DEADLINE + ANSWER_WITHIN, self.now + HORIZON
        if self.rules.capped:
            kept = [(k, o) for k, o in self.contacted if k != key and (o.prepared_at or 0) > self.now - CAP[1]]
            self.contacted = [*kept, (key, a)]

    def write(self, name: Name, report: Report) -> Report:
        """Call the carrier: nothing is written after the deadline."""
        a = self.attempt(name)
        if self.now > a.deadline:
            return Report(report.number, "failed", "not_handed_off", source="answer")
        if report.error != "not_handed_off":
            a.sent += 1
        return report

    # Hearing.

    def observe(self, told: Sequence[tuple[Name, Report]]) -> None:
        """Keep reports (at most one per attempt), climb, and draw the consequences."""
        fresh = sorted(((self.attempt(n), r) for n, r in told), key=lambda t: t[0].number)
        fresh = [(a, r) for a, r in fresh if all(k.number != r.number for k in a.heard)]
        if not fresh:
            return
        twice = {a.intent: self._twice(a.intent) for a, _ in fresh}
        applied = {a for a, r in fresh if self._climb(a, r)}
        for a, r in fresh:
            if a in applied:
                self._speak(a, r)
            self._note(a, r)
        for a in applied:
            if a.state == "failed" and not a.taken and not self._may_have_reached(a):
                self.slot = None if self.slot and self.slot[2] is a else self.slot
                self.contacted = [(k, o) for k, o in self.contacted if o is not a]
        ended: list[tuple[Intent, str]] = []
        second: list[Attempt] = []
        for intent in sorted(twice, key=lambda i: i.attempts[0].number):
            self._settle(intent, [(a, r) for a, r in fresh if a.intent is intent], applied, ended, second, twice[intent])
        self._end(ended)
        for a in second:
            self.reviews.setdefault(a, "second_handoff")

    def _climb(self, a: Attempt, r: Report) -> bool:
        rank = RANKS.get(a.state, 0)
        a.heard.append(r)
        a.taken = a.taken or r.has_it
        a.remote = a.remote or r.remote
        a.error = r.error or a.error
        if RANKS[r.state] <= rank:
            return False
        a.state = r.state
        if r.state in {"failed", "delivered"} or (r.state == "unknown" and self.now >= a.horizon):
            a.check = None
        elif a.intent.asked or not self.rules.asks:
            a.check = a.horizon
        else:
            a.check = min(self.now + FIRST_CHECK, a.horizon)
        return True

    def _speak(self, a: Attempt, r: Report) -> None:
        """Say the intent's state: delivered whoever was, else the last attempt's."""
        intent = a.intent
        if a.state != "delivered" and (a is not intent.attempts[-1] or self._delivered(intent)):
            return
        intent.state = PUBLIC[a.state]
        reason = "delivered" if a.state == "delivered" else r.reason or r.error
        if a.state == "failed":
            reason = reason or "unclassified"
        intent.reason = reason if not intent.closed else reason or intent.reason

    def _note(self, a: Attempt, r: Report) -> None:
        """Draw what follows from the evidence, not from the verdict."""
        if r.error == "auth_config":
            self.stopped.add(a.route)
        if r.error == "opted_out":
            self.mark = self.now

    @staticmethod
    def _delivered(intent: Intent) -> bool:
        return any(a.state == "delivered" for a in intent.attempts)

    @staticmethod
    def _may_have_reached(a: Attempt) -> bool:
        return any(o.taken or o.state in {"prepared", "unknown"} for o in a.intent.attempts if o is not a)

    @staticmethod
    def _twice(intent: Intent) -> bool:
        """Whether one arrived and another may have: a certain failure, or a conclusive look-up, before it is why it was made."""
        return any(
            (o.taken or (o.state == "unknown" and o.missing < 2 and o.ordinal > a.ordinal))
            and not (o.state == "failed" and o.ordinal < a.ordinal)
            for a in intent.attempts
            if a.state == "delivered"
            for o in intent.attempts
            if o is not a
        )

    def _settle(
        self,
        intent: Intent,
        told: Sequence[tuple[Attempt, Report]],
        applied: set[Attempt],
        ended: list[tuple[Intent, str]],
        second: list[Attempt],
        was_twice: bool,  # noqa: FBT001 - a private step
    ) -> None:
        if self._delivered(intent):
            self._settle_delivered(intent, ended, second, was_twice=was_twice)
            return
        last = intent.attempts[-1]
        if last.state == "queued":
            for a, r in told:
                if r.may_arrive and a is not last and not r.is_older_than_the_end_of(a):
                    self._hold(last, a)
        if last not in applied or intent.closed:
            return
        if last.state == "failed":
            self._settle_failed(intent, next(r for a, r in told if a is last), ended)
        elif last.state == "unknown" and self.now >= last.horizon:
            self._in_doubt(last, ended)
        elif last.state == "unknown" and self.rules.waited and not last.taken:
            last.unheard = (self.now if last.prepared_at is None else last.prepared_at) + WAITED

    def _settle_delivered(
        self, intent: Intent, ended: list[tuple[Intent, str]], second: list[Attempt], *, was_twice: bool
    ) -> None:
        for a in intent.attempts:
            if a.state == "queued":
                a.state = "cancelled"
                del self.rows[a]
        ended.append((intent, "delivered"))
        twice = self._twice(intent)
        if was_twice and not twice:
            for a in intent.attempts:
                if self.reviews.get(a) == "second_handoff":
                    del self.reviews[a]
        if twice and not was_twice:
            second.append(next(a for a in intent.attempts if a.state == "delivered"))

    def _hold(self, retry: Attempt, earlier: Attempt) -> None:
        """Let a retry wait for what the carrier has after all, and what may still arrive."""
        row = self.rows[retry]
        row.due, row.lease, row.until = max(row.due, earlier.horizon), None, 0
        retry.intent.state, retry.intent.reason = "deferred", "earlier_attempt"

    def _settle_failed(self, intent: Intent, report: Report, ended: list[tuple[Intent, str]]) -> None:
        ends, last = self._ends(intent), intent.attempts[-1]
        if report.source == "operator":  # who wants another attempt says so
            ended.append((intent, report.reason or ends[-1]))
            return
        route = self._way(last, report)
        after = (report.retry_after or 0) if route == last.route else 0
        at = None if intent.asked else self._retry_at(intent, ends, after, elsewhere=route != last.route)
        if at is None:
            ended.append((intent, ends[-1]))
        else:
            self._retry(intent, at, "retry", route)

    def _way(self, last: Attempt, report: Report) -> int:
        """Choose another route for what was certainly not taken: a new one that is open; its own is stopped: any that is open."""
        refused = last.error in NOT_TAKEN or report.source == "answer"
        if not self.rules.fails_over or last.taken or not refused:
            return last.route
        others = [r for r in self.rules.routes if r != last.route and r not in self.stopped]
        new = [r for r in others if all(a.route != r for a in last.intent.attempts)]
        found = new or (others if last.route in self.stopped else [])
        return found[0] if found else last.route

    @staticmethod
    def _ends(intent: Intent) -> list[str]:
        """Say how each attempt that went out ended, also that nobody knows."""
        out = [a for a in intent.attempts if a.state in {"failed", "unknown"}]
        return ["in doubt" if a.state == "unknown" else a.error or "unclassified" for a in out]

    @staticmethod
    def _used_up(ends: Sequence[str]) -> bool:
        return sum(e not in NOT_TAKEN for e in ends) >= MAX_ATTEMPTS

    def _in_time(self, intent: Intent, at: int) -> bool:
        return at < min(intent.event.expires, intent.event.accepted + RETRY_WINDOW)

    def _retry_at(self, intent: Intent, errors: Sequence[str], retry_after: int, *, elsewhere: bool) -> int | None:
        last = errors[-1]
        free = last in NOT_TAKEN
        if not free and (last not in self.rules.classes or self._used_up(errors)):
            return None
        streak = 0
        for e in reversed(errors):
            if e not in (NOT_TAKEN if free else ("transient", "bounced_late")):
                break
            streak += 1
        initial, factor, longest = BACKOFF
        grown = max(min(initial * factor ** (streak - 1), longest), retry_after)
        wait = STOPPED_FOR if last == "auth_config" and not elsewhere else grown
        at = self.now + wait
        return at if self._in_time(intent, at) else None

    def _retry(self, intent: Intent, at: int, allowed: str, route: int) -> None:
        self.rows[self._attempt(intent, route=route, allowed=allowed)] = Row(at)
        intent.state, intent.reason = "deferred", "retry"
        self._settle_reviews(intent)

    def _in_doubt(self, a: Attempt, ended: list[tuple[Intent, str]]) -> None:
        if self.rules.horizon == "close":
            ended.append((a.intent, "horizon"))
        else:
            self.reviews.setdefault(a, "horizon")

    # Asking, and the sweeps.

    def claim_polls(self) -> list[Name]:
        """Claim what is to be asked about by moving its next check."""
        due = [
            a
            for a in self.attempts
            if a.state in {"submitted", "unknown"} and a.check is not None and a.check <= self.now < a.horizon
        ]
        for a in due:
            a.check, a.checks = min(self.now + CLAIMED_FOR, a.horizon), a.checks + 1
        return [a.name for a in due]

    def reschedule(self, claims: Sequence[tuple[Name, int]]) -> None:
        """Set the next question of what nobody moved meanwhile."""
        for name, claimed in claims:
            a = self.attempt(name)
            if a.check == claimed and a.state in {"submitted", "unknown"}:
                a.check = min(self.now + min(FIRST_CHECK << min(a.checks, 20), LONGEST_CHECK), a.horizon)

    def count_missing(self, names: Iterable[Name]) -> None:
        """Count look-ups that found nothing, where that means something; at the second the pinned rule answers."""
        ended: list[tuple[Intent, str]] = []
        for a in map(self.attempt, names):
            settled = a.prepared_at is not None and self.now >= a.prepared_at + DEADLINE + SETTLING
            if a.state != "unknown" or a.taken or not settled or not self.rules.asks:
                continue
            a.missing += 1
            if a.missing == 2 and not a.intent.closed and a is a.intent.attempts[-1]:
                self._not_found(a, ended)
        self._end(ended)

    def _not_found(self, a: Attempt, ended: list[tuple[Intent, str]]) -> None:
        self._follow(self.rules.not_found, a, ended, allowed="not_found", cause="not_found")

    def _follow(self, rule: str | None, a: Attempt, ended: list[tuple[Intent, str]], *, allowed: str, cause: str) -> None:
        """Follow a rule for what is in doubt; in doubt it stays with its route."""
        if rule == "resend" and self._may_resend(a.intent):
            self._retry(a.intent, self.now, allowed, a.route)
        elif rule == "review":
            self.reviews.setdefault(a, cause)
        else:
            ended.append((a.intent, cause))

    def silence(self) -> None:
        """Let the rule answer that waited for a word, where there was none, and nobody is asked."""
        ended: list[tuple[Intent, str]] = []
        for a in self.attempts:
            if a.unheard is None or a.unheard > self.now:
                continue
            a.unheard = None
            i = a.intent
            asked = any(o in self.reviews for o in i.attempts)
            if a.state == "unknown" and a is i.attempts[-1] and a.is_silent and not (i.closed or i.asked or asked):
                self._follow(self.rules.waited, a, ended, allowed="waited", cause="not_heard")
        self._end(ended)

    def _may_resend(self, intent: Intent) -> bool:
        return not intent.asked and not self._used_up(self._ends(intent)) and self._in_time(intent, self.now)

    def doubts(self) -> list[Name]:
        """Find what was prepared and never answered."""
        return [a.name for a in self.attempts if a.state == "prepared" and a.check is not None and a.check <= self.now]

    def horizons(self) -> tuple[list[Name], list[Name]]:
        """Find what reached its horizon: what the carrier took, and what was in doubt."""
        over = [
            a
            for a in self.attempts
            if a.check is not None and a.state in {"submitted", "unknown"} and max(a.check, a.horizon) <= self.now
        ]
        return [a.name for a in over if a.state == "submitted"], [a.name for a in over if a.state == "unknown"]

    def stop_asking(self, names: Iterable[Name]) -> None:
        """Let the rule answer for what stayed in doubt until its horizon."""
        ended: list[tuple[Intent, str]] = []
        for a in map(self.attempt, names):
            a.check = None
            if not a.intent.closed and a is a.intent.attempts[-1]:
                self._in_doubt(a, ended)
        self._end(ended)

    # People.

    def answers(self, a: Attempt) -> list[str]:
        """Say how the open question about an attempt can be settled."""
        i, row, cause = a.intent, self.rows.get(a), self.reviews[a]
        parked, last = row is not None and row.due == NEVER, a is i.attempts[-1]
        found = [] if parked else ["leave"]
        if cause == "second_handoff":
            return found
        may_go = not i.closed and not i.asked and i.event.expires > self.now and last
        found += ["resend"] if may_go and (parked or a.state == "unknown") else []
        if parked:
            return [*found, "failed"]
        handed_off = a.state in RANKS
        return found + [s for s in ("failed", "delivered") if handed_off and RANKS[s] > RANKS[a.state]]

    def settle(self, name: Name, answer: str, report: Report) -> None:
        """Settle the question about an attempt, in a way that is among its answers; `report` is what the person tells of it."""
        a = self.attempt(name)
        i, row, cause = a.intent, self.rows.get(a), self.reviews.pop(a)
        if row is not None and answer == "failed":
            self._close([(i, "cancelled", "cancelled")])
        elif row is not None:
            row.due, row.lost = self.now, 0
            i.state, i.reason = "queued", None
        elif answer == "resend":
            self.asked_for.add(a)
            self._retry(i, self.now, "person", a.route)
        elif answer == "leave":
            if not i.closed and a is i.attempts[-1] and a.state == "unknown":
                self._end([(i, cause)])
        else:
            self.observe([(name, report)])

    def stop(self) -> None:
        """Take a STOP: whoever is prepared was first."""
        self.mark = self.now

    def resume(self) -> None:
        """Let stopped routes go on."""
        self.stopped.clear()
