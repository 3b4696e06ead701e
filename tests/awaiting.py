"""Wait for facts: ask again until they are there, or fail with what was seen last."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(ask: Callable[[], T], *, until: Callable[[T], bool] = bool, seconds: float = 20.0) -> T:
    """Ask until the answer is as wanted; return it, or fail with the last one."""
    deadline = time.monotonic() + seconds
    answer = ask()
    while not until(answer):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s; last seen: {answer!r}")
        time.sleep(0.05)
        answer = ask()
    return answer
