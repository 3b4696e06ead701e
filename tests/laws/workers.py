"""Two workers on one intent, commit by commit, in every order: one crash, a jump of the clock, a second delivery."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from tests.laws.history import ANSWERS, RULES, WAITS, Beside, Player, Step
from tests.laws.invariants import Watch
from tests.laws.model import Name

COMMITS: Final = ("claim", "prepare", "write", "observe")
SUBMITTED, UNKNOWN, TRANSIENT = 0, 2, 6
# Past the handoff's deadline; past the lease.
JUMPS: Final = (22, 61)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One way in which two workers' commits follow one another."""

    order: tuple[int, ...]
    """Which worker does its next commit."""
    crash: tuple[int, int] | None
    """Which worker dies, and before which of its commits."""
    jump: tuple[int, int] | None
    """Before which commit the clock jumps, and how far."""
    answer: int
    redelivered: bool
    """The second worker gets the first one's message again, instead of claiming for itself."""


def schedules() -> Iterator[Schedule]:
    """Give every schedule."""
    orders = [tuple(int(i not in ones) for i in range(8)) for ones in combinations(range(8), 4)]
    crashes = [None, *product((0, 1), range(4))]
    jumps = [None, *product(range(9), JUMPS)]
    for order, crash, jump, answer, redelivered in product(
        orders, crashes, jumps, (SUBMITTED, UNKNOWN, TRANSIENT), (False, True)
    ):
        yield Schedule(order, crash, jump, answer, redelivered)


class Workers:
    """Plays a schedule, then lets the sweeps and one sound worker go on until nothing is due."""

    def __init__(self, schedule: Schedule, beside: Beside | None = None) -> None:
        self.schedule = schedule
        self.player = Player(RULES[0], beside)
        self.watch = Watch(self.player.model)
        self.pages: list[int | None] = [None, None]
        self.wire: list[list[Name]] = [[], []]
        self.answered: list[list[Name]] = [[], []]
        self.done = [0, 0]
        self.found: list[str] = []

    def run(self) -> list[str]:
        """Say what did not hold."""
        self._step("accept", 0)
        for at, worker in enumerate(self.schedule.order):
            self._jump(at)
            self._commit(worker)
        self._jump(len(self.schedule.order))
        self._recover()
        return self.found + self._lost()

    def _step(self, verb: str, pick: int = 0, what: int = 0) -> None:
        self.found += self.player.step(Step(verb, pick, what)) + self.watch.breaches()

    def _jump(self, at: int) -> None:
        if self.schedule.jump is not None and self.schedule.jump[0] == at:
            self._step("wait", WAITS.index(self.schedule.jump[1]))

    def _commit(self, worker: int) -> None:
        commit = self.done[worker]
        self.done[worker] += 1
        crash = self.schedule.crash
        if crash is None or crash[0] != worker or commit < crash[1]:
            getattr(self, f"_{COMMITS[commit]}")(worker)

    def _claim(self, worker: int) -> None:
        if worker == 1 and self.schedule.redelivered:
            self.pages[1] = self.pages[0]
            return
        before = len(self.player.mail)
        self._step("dispatch")
        self.pages[worker] = before if len(self.player.mail) > before else None

    def _prepare(self, worker: int) -> None:
        page, wire = self.pages[worker], self.player.wire
        if page is not None:
            before = len(wire)
            self._step("prepare", len(self.player.mail) - 1 - page)
            self.wire[worker] = wire[before:]

    def _write(self, worker: int) -> None:
        for name in self.wire[worker]:
            self._step("write", self.player.wire.index(name), self.schedule.answer)
            self.answered[worker].append(name)

    def _observe(self, worker: int) -> None:
        answers = self.player.answers
        for name in self.answered[worker]:
            at = max(i for i, (n, _) in enumerate(answers) if n == name)
            self._step("answer", len(answers) - 1 - at)

    def _recover(self) -> None:
        while self.player.wire:  # of the worker that died
            self._step("lose")
        for _ in range(3):
            self._step("wait", WAITS.index(700))
            for verb in ("doubt", "dispatch", "prepare"):
                self._step(verb)
            while self.player.wire:
                self._step("write", 0, SUBMITTED)
                self._step("answer")
            self._step("wait", WAITS.index(31))
            self._step("doubt")
        self._step("wait", WAITS.index(3700))
        self._step("horizon")

    def _lost(self) -> list[str]:
        """Nothing is lost: it is closed, or a person is asked, or it is due."""
        m = self.player.model
        return [
            f"event {i.event.number} was lost"
            for i in m.intents
            if not i.closed and not any(a in m.reviews or a in m.rows for a in i.attempts)
        ]


assert (ANSWERS[SUBMITTED][0], ANSWERS[UNKNOWN][0], ANSWERS[TRANSIENT][1]) == ("submitted", "unknown", "transient")
