"""Failpoints: named places where a test kills, stops or breaks this process. Off unless DAYBOOK_FAILPOINTS names a folder.

`transact` has two for every piece of work that wrote something (`before_commit`, `committed`), named
after the function it stands in; the carriers' network has three (`write`, `written`, `answered`). The
folder's file `rules` says at which passing of a label what happens:

    flows.handoff._prepare/committed#3=kill

It is read at each passing, so that a test changes it while everything runs. Passings are counted
over all processes in the file `passings`, where the test also reads which labels were passed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Final

from app.ground.config import failpoints_folder
from app.ground.errors import DaybookError

HOLD_STEP_SECONDS: Final = 0.02
STOP_SECONDS: Final = 0.1
EVERY: Final = 0


class Action(StrEnum):
    """What a failpoint does to the process that reaches it."""

    KILL = "kill"
    """SIGKILL: nothing is cleaned up."""
    STOP = "stop"
    """SIGSTOP: it goes on when somebody sends SIGCONT."""
    HOLD = "hold"
    """It waits until the test removes the file `holding` from the folder."""
    LOSE = "lose"
    """The answer is lost: FailpointHit, which `transact` takes for a broken connection."""


class FailpointHit(DaybookError):
    """A failpoint broke this connection on purpose."""


@dataclass(frozen=True, slots=True)
class Points:
    """Where the rules of this run are, and its passings are counted."""

    folder: Path

    def reach(self, label: str) -> None:
        """Count a passing, and do what a rule says about it."""
        count = self._count(label)
        rules = self._rules()
        match rules.get((label, count)) or rules.get((label, EVERY)):
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
                # Another thread may take the signal while this one runs on: in here the stop finds it.
                time.sleep(STOP_SECONDS)
            case Action.HOLD:
                holding = self.folder / "holding"
                holding.touch()
                while holding.exists():
                    time.sleep(HOLD_STEP_SECONDS)
            case Action.LOSE:
                raise FailpointHit(label)
            case None:
                pass

    def _count(self, label: str) -> int:
        with (self.folder / "passings").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            count = file.read().splitlines().count(label) + 1
            file.write(f"{label}\n")
        return count

    def _rules(self) -> dict[tuple[str, int], Action]:
        try:
            return read_rules((self.folder / "rules").read_text())
        except FileNotFoundError:
            return {}


@cache
def _points() -> Points | None:
    folder = failpoints_folder()
    return Points(Path(folder)) if folder else None


def read_rules(text: str) -> dict[tuple[str, int], Action]:
    """Read rules, one a line: a label, the passing it is for (all, where none is named), and an action."""
    rules = {}
    for rule in text.split():
        place, _, action = rule.partition("=")
        label, _, passing = place.partition("#")
        rules[label, int(passing) if passing else EVERY] = Action(action)
    return rules


def reach(label: str) -> None:
    """Pass a failpoint; nothing happens unless failpoints are on."""
    points = _points()
    if points is not None:
        points.reach(label)


def label_of(work: Callable[..., object]) -> str | None:
    """Name a piece of work after the function that it stands in, with its module; None when failpoints are off."""
    if _points() is None:
        return None
    inner = work.func if isinstance(work, partial) else work
    return f"{inner.__module__.removeprefix('app.')}.{inner.__qualname__.partition('.<locals>')[0]}"
