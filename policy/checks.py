"""When a carrier is asked again about an attempt in doubt: back-off with jitter, up to a cap and the horizon."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

LONGEST: Final = timedelta(minutes=30)
DOUBLINGS: Final = 20


def next_check(check_count: int, *, first_after: timedelta, horizon_at: datetime, jitter: float, now: datetime) -> datetime:
    """Give the moment of the next question after `check_count` of them; never later than the horizon.

    `jitter` lies in [0, 1): it spreads the questions by a fifth, so that a burst of handoffs is no burst of polls.
    """
    grown: timedelta = first_after * (1 << min(check_count, DOUBLINGS))
    wait = min(grown, max(LONGEST, first_after))
    return min(now + wait * (1 + jitter / 5), horizon_at)
