"""Failpoints: named places where a test kills, stops or breaks this process. Off unless DAYBOOK_FAILPOINTS is set.

`transact` has three for every piece of work (`begun`, `before_commit`, `committed`), named after the
function that called it; the carriers' network has three (`write`, `written`, `answered`). A rule says
at which passing of a label what happens: `flows.handoff._prepare/committed#3=kill`. Passings are
counted over all processes of a run, in the folder that DAYBOOK_FAILPOINTS_FOLDER names, where a
test also reads which labels were passed at all.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, partial
from pathlib import Path
from typing import Final

from app.ground.config import failpoint_rules
from app.ground.errors import DaybookError

HOLD_STEP_SECONDS: Final = 0.02


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
    """The rules of this run, and where its passings are counted."""

    folder: Path
    rules: Mapping[tuple[str, int], Action] = field(default_factory=dict)
    """(label, at which passing) -> action; passing 0 means every one."""

    def reach(self, label: str) -> None:
        """Count a passing, and do what a rule says about it."""
        count = self._count(label)
        match self.rules.get((label, count)) or self.rules.get((label, 0)):
            case Action.KILL:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.STOP:
                os.kill(os.getpid(), signal.SIGSTOP)
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


@cache
def _points() -> Points | None:
    spec, folder = failpoint_rules()
    return Points(Path(folder), read_rules(spec)) if folder else None


def read_rules(spec: str) -> dict[tuple[str, int], Action]:
    """Read rules as DAYBOOK_FAILPOINTS has them: label, optional #passing, =action, joined by semicolons."""
    rules = {}
    for rule in filter(None, spec.split(";")):
        place, _, action = rule.partition("=")
        label, _, passing = place.partition("#")
        rules[label.strip(), int(passing or 0)] = Action(action.strip())
    return rules


def reach(label: str) -> None:
    """Pass a failpoint; nothing happens unless failpoints are on."""
    points = _points()
    if points is not None:
        points.reach(label)


def around(work: Callable[..., object]) -> Callable[[str], None]:
    """Give what passes the failpoints of one piece of transactional work."""
    points = _points()
    if points is None:
        return _pass_by
    return partial(_reach_at, points, label_of(work))


def label_of(work: Callable[..., object]) -> str:
    """Name a piece of work after the function that it stands in: module and function, below `app`."""
    inner = work.func if isinstance(work, partial) else work
    return f"{inner.__module__.removeprefix('app.')}.{inner.__qualname__.partition('.<locals>')[0]}"


def _reach_at(points: Points, label: str, place: str) -> None:
    points.reach(f"{label}/{place}")


def _pass_by(place: str) -> None:
    del place
