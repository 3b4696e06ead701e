"""A seeded killer: kill -9 for processes of a running house, one after the other, and what each kill can explain."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self

from local.processes import session_members
from tests.chaos.crowd import Crowd

VICTIMS: Final = ("web", "worker", "worker_bulk", "beat")
# A leader is started anew after a pause that grows, a child at once: more children, that work goes on in between.
LEADERS: Final = 0.25
# The supervisor notices at once, but a child may do a little more before it is swept.
SWEPT_WITHIN: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill, by Postgres's clock, and how many processes that take work went with it."""

    name: str
    at: datetime
    task_process_count: int


@dataclass
class Killer:
    """Kill a random process every second or so, so many times; the supervisor brings it back."""

    crowd: Crowd
    seed: int
    count: int
    pause_seconds: tuple[float, float] = (0.5, 1.5)
    kills: list[Kill] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _fault: Exception | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._roam, name="killer")
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        assert self._thread is not None
        self._thread.join()
        if self._fault is not None and value is None:
            raise self._fault

    def _roam(self) -> None:
        chance = random.Random(self.seed)  # noqa: S311 - nobody is to be kept from guessing it
        try:
            while len(self.kills) < self.count and not self._over.wait(chance.uniform(*self.pause_seconds)):
                self._kill_one(chance.choice(VICTIMS), is_leader=chance.random() < LEADERS, drawn=chance.random())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test's own thread raises it
            self._fault = error

    def _kill_one(self, name: str, *, is_leader: bool, drawn: float) -> None:
        """Kill the process of this name or one of its children; nobody, while it is down or has no children yet."""
        leader = self.crowd.pid(name)
        if leader is None:
            return
        children = sorted(pid for pid in session_members(leader) if pid != leader)
        if not children and name != "beat":
            return
        is_leader = is_leader or not children
        victim = leader if is_leader else children[int(drawn * len(children))]
        at = self.crowd.house.sql("SELECT clock_timestamp()")[0][0]
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return
        lost = (len(children) if is_leader else 1) if name.startswith("worker") else 0
        self.kills.append(Kill(f"{name}{'' if is_leader else ' child'}", at, lost))

    def counts(self) -> dict[str, int]:
        """Count the kills by name."""
        return dict(Counter(kill.name for kill in self.kills))


def find_unexplained(calls: Mapping[str, datetime], kills: Sequence[Kill], *, window: int, call_within: timedelta) -> list[str]:
    """Name the calls that no kill explains, when a kill may cut off one window of every process it took.

    A call began at its instant and ends within `call_within`. Since that is the same for all, giving
    each in turn to the earliest kill that still has room finds a way wherever there is one.
    """
    room = [window * kill.task_process_count for kill in kills]
    unexplained = []
    for call, began_at in sorted(calls.items(), key=lambda item: item[1]):
        possible = (n for n, kill in enumerate(kills) if room[n] and began_at - SWEPT_WITHIN <= kill.at <= began_at + call_within)
        chosen = next(possible, None)
        if chosen is None:
            unexplained.append(call)
        else:
            room[chosen] -= 1
    return unexplained
