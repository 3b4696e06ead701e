"""Wait for facts: ask again until they are there, or fail with what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

# What waits for a fact goes on as soon as it is there; how long it may take depends on what else the machine does.
PATIENCE: Final = 4.0


def eventually(ask: Callable[[], T], *, until: Callable[[T], bool] = bool, seconds: float = 20.0) -> T:
    """Ask until the answer is as wanted; return it, or fail with the last one. `seconds` are those of an idle machine."""
    deadline = time.monotonic() + PATIENCE * seconds
    answer = ask()
    while not until(answer):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {PATIENCE * seconds:.0f} s; last seen: {answer!r}")
        time.sleep(0.05)
        answer = ask()
    return answer
