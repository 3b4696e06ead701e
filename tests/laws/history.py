"""Histories: a seed gives steps, steps are played on the model and, beside it, on the real verbs; a failing one is shrunk.

Every step means something in any state, if only "nothing to do": so steps can be dropped one by one
while the history still fails, and what is left is the story of the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random
from typing import Final, Protocol

from tests.laws.invariants import Watch
from tests.laws.model import MAX_AGE, Model, Name, Report, Rules

RULES: Final = (
    Rules("resend", "review"),
    Rules("review", "close", capped=True),
    Rules("close", "review", waited="review"),
    Rules("review", "review", asks=False, waited="resend"),
    Rules("resend", "close", fails_over=True, capped=True),
    Rules("review", "review", waited="resend", fails_over=True, late=True),
)
# Some end just where a lease, a back-off, a deadline or a cooldown does.
WAITS: Final = (1, 8, 14, 22, 29, 31, 57, 58, 61, 88, 130, 590, 596, 601, 700, 3700)
LONG: Final = (640, 700, 700, 1790, 3700, 90_000)
LEASE_AND_MORE: Final = 61
CRASHES: Final = 0.04
LIVES: Final = (MAX_AGE, MAX_AGE, MAX_AGE, 1200)
WEIGHTS: Final = {
    "wait": 6,
    "long": 1,
    "accept": 4,
    "cancel": 2,
    "call_off": 0.5,
    "fill": 0.7,
    "dispatch": 8,
    "prepare": 8,
    "write": 7,
    "answer": 7,
    "lose": 1,
    "receipt": 6,
    "poll": 3,
    "doubt": 3,
    "horizon": 3,
    "silence": 2,
    "settle": 3,
    "expire": 1,
    "stop": 0.3,
    "resume": 1,
}
# What usually follows one another; steps alone would seldom get far.
FLOWS: Final[Mapping[tuple[str, ...], float]] = {
    ("dispatch", "prepare", "write", "answer"): 14,
    ("wait", "dispatch", "prepare", "write", "answer"): 10,
    ("dispatch", "prepare", "lose", "wait", "doubt"): 3,
    ("dispatch", "prepare", "lose", "wait", "doubt", "long", "poll", "long", "poll"): 4,
    ("dispatch", "prepare", "write", "answer", "long", "poll", "long", "poll"): 6,
    ("accept", "dispatch", "prepare", "write", "answer", "accept", "dispatch"): 4,
    ("wait", "poll"): 3,
    ("long", "poll", "long", "poll"): 4,
    ("long", "horizon"): 3,
    ("long", "horizon", "settle", "dispatch", "prepare", "write", "answer"): 3,
    ("dispatch", "prepare", "write", "answer", "long", "silence"): 3,
    ("dispatch", "prepare", "lose", "wait", "doubt", "long", "long", "silence"): 2,
    ("long", "silence", "dispatch", "prepare", "write", "answer"): 3,
    ("dispatch", "lapse") * 6: 0.7,
    ("receipt", "receipt"): 3,
    ("dispatch", "stop", "prepare", "write"): 0.5,
    ("dispatch", "cancel", "prepare", "write"): 0.7,
    ("accept", "accept", "call_off", "accept", "dispatch"): 0.7,
    ("dispatch", "prepare", "cancel", "write", "answer"): 0.7,
    ("dispatch", "fill", "prepare", "write"): 0.5,
    ("dispatch", "prepare", "accept", "fill", "write", "answer"): 0.7,
    ("wait", "dispatch", "dispatch"): 2,
    **{(verb,): weight for verb, weight in WEIGHTS.items()},
}
CHOICES: Final = tuple(FLOWS)
ODDS: Final = tuple(FLOWS.values())

# What a carrier answers, and what it tells later: (state, error class, reason, names its id, Retry-After).
Said = tuple[str, str | None, str | None, bool, int | None]
ANSWERS: Final[tuple[Said, ...]] = (
    ("submitted", None, None, True, None),
    ("submitted", None, None, True, None),
    ("unknown", None, "timed_out", False, None),
    ("unknown", None, "timed_out", False, None),
    ("unknown", None, "timed_out", False, None),
    ("unknown", None, "timed_out", False, None),
    ("failed", "transient", None, False, None),
    ("failed", "transient", None, False, None),
    ("failed", "throttled", None, False, 90),
    ("failed", "not_handed_off", None, False, None),
    ("failed", "permanent_recipient", None, False, None),
    ("failed", "auth_config", None, False, None),
    ("failed", "opted_out", None, False, None),
)
TOLD: Final[tuple[Said, ...]] = (
    ("submitted", None, None, True, None),
    ("delivered", None, None, True, None),
    ("delivered", None, None, True, None),
    ("failed", "transient", None, True, None),
    ("failed", "transient", None, False, None),
    ("failed", None, None, True, None),
    ("unknown", None, "unknown_word", True, None),
    ("failed", "permanent_recipient", None, False, None),
    ("failed", "bounced_late", None, True, None),
    ("failed", "opted_out", None, True, None),
    ("delivered", None, None, False, None),
)
TOLD_DELIVERED: Final[Said] = ("delivered", None, None, False, None)
NO_ANSWER: Final = 2
NOT_FOUND: Final = 8
"""Of the picks of a poll so many bring no answer, and so many a look-up that finds nothing."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: a verb, two picks among what there is, and whether it is rolled back at its commit."""

    verb: str
    pick: int
    what: int
    crash: bool = False

    def __str__(self) -> str:
        return f"{self.verb}({self.pick}, {self.what}{', crash' if self.crash else ''})"


@dataclass(frozen=True, slots=True)
class History:
    """A seed's rules and steps."""

    seed: int
    rules: Rules
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.rules}:\n  " + "\n  ".join(map(str, self.steps))


def history(seed: int, *, longest: int) -> History:
    """Make the history of a seed: the same on every machine."""
    random = Random(seed)  # noqa: S311 - it guards nothing
    flows = random.choices(CHOICES, ODDS, k=longest)
    verbs = ("accept", *chain.from_iterable(flows))[: random.randint(longest // 2, longest)]
    steps = [Step(v, int(random.random() * 64), int(random.random() * 64), random.random() < CRASHES) for v in verbs]
    return History(seed, RULES[seed % len(RULES)], tuple(steps))


class Beside(Protocol):
    """A second world that does what the model does, and says where the two differ."""

    def do(self, verb: str, *args: object) -> object:
        """Do one transaction."""

    def crash(self, verb: str, *args: object) -> None:
        """Do one transaction that never commits."""

    def differences(self, model: Model) -> list[str]:
        """Say where it stands elsewhere than the model."""


class Player:
    """Play steps: the model chooses what there is to pick, the world beside it is told by name."""

    def __init__(self, rules: Rules, beside: Beside | None = None) -> None:
        self.model = Model(rules)
        self.beside = beside
        self.mail: list[tuple[int, tuple[Name, ...]]] = []
        self.wire: list[Name] = []
        self.answers: list[tuple[Name, Report]] = []
        self.known: list[Name] = []
        """Attempts that a carrier may speak of."""
        self.number = 0
        self.crash = False

    def step(self, step: Step) -> list[str]:
        """Play one step; say what of it the world beside did otherwise."""
        self.crash = step.crash
        self._wait_for(1)  # no two transactions of one person have the same clock
        getattr(self, f"_{step.verb}")(step.pick, step.what)
        if self.beside is None:
            return []
        return self.beside.differences(self.model)

    def _both(self, verb: str, *args: object) -> bool:
        """Do one transaction in both worlds; False when it crashed, and so happened in neither."""
        if self.crash:
            if self.beside is not None:
                self.beside.crash(verb, *args)
            return False
        if self.beside is not None:
            self.beside.do(verb, *args)
        return True

    def hear(self, name: Name, report: Report) -> None:
        """Hear one report, a second after whatever was before."""
        self.crash = False
        self._wait_for(1)
        self._observe([(name, report)])

    def _report(self, said: Said, source: str) -> Report:
        self.number += 1
        state, error, reason, remote, retry_after = said
        return Report(self.number, state, error, reason, remote, retry_after, source)

    def _observe(self, told: Sequence[tuple[Name, Report]]) -> None:
        if told and self._both("observe", told):
            self.model.observe(told)

    def _wait(self, pick: int, _: int) -> None:
        self._wait_for(WAITS[pick % len(WAITS)])

    def _long(self, pick: int, _: int) -> None:
        self._wait_for(LONG[pick % len(LONG)])

    def _lapse(self, _: int, __: int) -> None:
        self._wait_for(LEASE_AND_MORE)

    def _wait_for(self, seconds: int) -> None:
        self.model.now += seconds
        if self.beside is not None:
            self.beside.do("wait", self.model.now)

    def _accept(self, pick: int, what: int) -> None:
        key, lives = pick % 2, LIVES[what % len(LIVES)]
        if self._both("accept", key, lives):
            self.model.accept(key, lives)

    def _cancel(self, pick: int, _: int) -> None:
        number = pick % len(self.model.events) if self.model.events else -1
        if number >= 0 and self._both("cancel", number):
            self.model.cancel(number)

    def _fill(self, pick: int, _: int) -> None:
        if self._both("fill", pick % 2):
            self.model.fill(pick % 2)

    def _call_off(self, pick: int, _: int) -> None:
        key = pick % 2
        if self._both("call_off", key):
            self.model.call_off(key)

    def _dispatch(self, _: int, __: int) -> None:
        if self.crash:
            self._both("dispatch")
            return
        pages = self.model.dispatch()
        self.mail += pages
        self._both("dispatch", pages)

    def _prepare(self, pick: int, _: int) -> None:
        """Take one message from the queue; it stays there, as one that is delivered again does."""
        if not self.mail:
            return
        lease, names = self.mail[-1 - pick % min(3, len(self.mail))]
        if self.crash:
            self._both("prepare", lease, names)
            return
        admitted = self.model.prepare(lease, names)
        self.wire += admitted
        self._both("prepare", lease, names, admitted)

    def _write(self, pick: int, what: int) -> None:
        if self.wire:
            name = self.wire.pop(pick % len(self.wire))
            report = self.model.write(name, self._report(ANSWERS[what % len(ANSWERS)], "answer"))
            if report.error != "not_handed_off":
                self.known.append(name)
            if not self.crash:  # else the process is gone, and the answer with it
                self.answers.append((name, report))

    def _lose(self, pick: int, _: int) -> None:
        if self.wire:
            self.wire.pop(pick % len(self.wire))

    def _answer(self, pick: int, _: int) -> None:
        """Observe an answer, the newest first; an older one is offered again under its own number."""
        if self.answers:
            self._observe([self.answers[-1 - pick % min(2, len(self.answers))]])

    def _receipt(self, pick: int, what: int) -> None:
        if self.known:
            self._observe([(self.known[pick % len(self.known)], self._report(TOLD[what % len(TOLD)], "receipt"))])

    def _poll(self, pick: int, what: int) -> None:
        """Claim, ask, observe, set the next question, count what was not found: four transactions."""
        claimed = self.model.claim_polls()
        if self.beside is not None:
            self.beside.do("claim_polls", claimed)
        if not claimed:
            return
        m = self.model
        claims = [(n, m.attempt(n).check or 0) for n in claimed]
        reports: list[tuple[Name, Report]] = []
        missing: list[Name] = []
        for at, name in enumerate(claimed):
            said = (what + at) % (len(TOLD) + NOT_FOUND + NO_ANSWER)
            a = m.attempt(name)
            if not m.rules.asks or said >= len(TOLD) + NOT_FOUND:
                continue
            if said >= len(TOLD):
                missing += [] if a.remote else [name]
            else:
                reports.append((name, self._report(TOLD[said], "poll" if a.remote else "lookup")))
        self._observe([(n, r) for n, r in reports if self._is_news(n, r)])
        if self._both("reschedule", claims):
            m.reschedule(claims)
        if missing and self._both("count_missing", missing):
            m.count_missing(missing)
        del pick

    def _is_news(self, name: Name, report: Report) -> bool:
        """Unchanged answers are counted, not appended; that the carrier has it after all is news once."""
        a = self.model.attempt(name)
        ranks = ("prepared", "submitted", "unknown", "failed", "delivered")
        ours, theirs = ranks.index(a.state), ranks.index(report.state)
        return theirs > ours or (theirs < ours and not a.taken)

    def _doubt(self, _: int, __: int) -> None:
        told = [(n, self._report(("unknown", None, "no_answer", False, None), "reconcile")) for n in self.model.doubts()]
        if self._both("doubt", told):
            self.model.observe(told)

    def _horizon(self, _: int, __: int) -> None:
        took, doubtful = self.model.horizons()
        self._observe([(n, self._report(("unknown", None, "horizon", False, None), "reconcile")) for n in took])
        if doubtful and self._both("stop_asking", doubtful):
            self.model.stop_asking(doubtful)

    def _silence(self, _: int, __: int) -> None:
        if self._both("silence"):
            self.model.silence()

    def _settle(self, pick: int, what: int) -> None:
        """Let a person answer one of the open questions, in one of the ways that it can be answered."""
        asked = sorted(self.model.reviews, key=lambda a: a.number)
        if not asked:
            return
        a = asked[pick % len(asked)]
        answers = self.model.answers(a)
        if not answers:
            return
        answer = answers[what % len(answers)]
        said: Said = ("failed", "unclassified", "settled", False, None) if answer == "failed" else TOLD_DELIVERED
        report = self._report(said, "operator")
        if self._both("settle", a.name, answer, report):
            self.model.settle(a.name, answer, report)

    def _expire(self, _: int, __: int) -> None:
        if self._both("expire"):
            self.model.expire()

    def _stop(self, _: int, __: int) -> None:
        if self._both("stop"):
            self.model.stop()

    def _resume(self, _: int, __: int) -> None:
        if self.model.stopped and self._both("resume"):
            self.model.resume()


@dataclass(eq=False)
class Failed(Exception):
    """A history and what did not hold in it."""

    history: History
    breaches: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.history}\nbreaks:\n  " + "\n  ".join(self.breaches)


def play(rules: Rules, steps: Sequence[Step], beside: Beside | None = None) -> list[str]:
    """Play steps until something does not hold; say what."""
    player = Player(rules, beside)
    watch = Watch(player.model)
    for step in steps:
        found = player.step(step) + watch.breaches()
        if found:
            return [f"after {step}: {each}" for each in found]
    return []


def shrink(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool]) -> tuple[Step, ...]:
    """Drop steps, large pieces first, as long as the history still fails."""
    kept, size = list(steps), max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(kept):
            without = kept[:at] + kept[at + size :]
            if fails(without):
                kept = without
            else:
                at += size
        if size == 1:
            return tuple(kept)
        size = max(1, size // 2)


def search(seeds: Sequence[int], *, longest: int, run: Callable[[Rules, Sequence[Step]], list[str]]) -> None:
    """Play the histories of these seeds; raise the first that fails, shrunk."""
    for seed in seeds:
        h = history(seed, longest=longest)
        if run(h.rules, h.steps):
            steps = shrink(h.steps, lambda s, rules=h.rules: bool(run(rules, s)))  # type: ignore[misc]
            raise Failed(History(seed, h.rules, steps), tuple(run(h.rules, steps)))
