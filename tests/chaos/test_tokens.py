"""A route's rate under eight worker processes, by the carrier's clock: never above it in any window, and hardly below it.

For five seconds Valkey stands still, and with it the broker and every bucket.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from simulator.carrier import wall_clock
from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import OPEN, Crowd, furnish
from tests.e2e.house import new_number

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

RATE: Final = 10
BURST: Final = 10
VOID_AFTER: Final = 1.0
LASTS: Final = 30.0
STALLS_AT: Final = 10.0
STALLS_FOR: Final = 5.0
PEOPLE: Final = 8
OCCASIONS: Final = 35
"""Events for each: more than can go in the time."""
# The house has two processes on this lane already.
SIX_MORE: Final = ("celery", "-A", "tasks.celery", "worker", "-Q", "urgent,sweeps", "-c", "6", "-n", "more@%h", "-l", "INFO")


@dataclass(frozen=True, slots=True)
class Stall:
    """From when until when Valkey stood still, by the clock that the simulator reads as well."""

    began: float
    ended: float


@pytest.fixture(scope="module")
def metered(house: Crowd) -> Iterator[Crowd]:
    crowd = furnish(house.house, tenant="metered", policy=hasty_policy(), rate_per_second=RATE, burst_count=BURST)
    yield crowd
    crowd.valkey.close()


def post_all(crowd: Crowd, numbers: Sequence[str]) -> list[str]:
    """Post everything in one batch, to be due at one instant."""
    due = crowd.house.sql("SELECT clock_timestamp() + %s", timedelta(seconds=4))[0][0]
    bodies: list[dict[str, Any]] = []
    for number in numbers:
        person = crowd.house.request(sms=number)["recipient"]
        bodies += [
            crowd.house.request(sms=number) | {"recipient": person, "not_before": due.isoformat()} for _ in range(OCCASIONS)
        ]
    answer = crowd.house.call("POST", "/v1/events/batch", json={"events": bodies})
    assert answer.is_success, answer.text
    return [result["event_id"] for result in answer.json()["results"]]


def arrivals(crowd: Crowd, numbers: Sequence[str]) -> list[float]:
    """Read when each request of ours came to the carrier, by its own clock."""
    told = crowd.house.client.get(f"{crowd.house.ready['simulator_url']}/_sim/requests").json()
    return sorted(row["arrived_at"] for row in told if row["to"] in numbers)


@contextmanager
def standing_still(crowd: Crowd) -> Iterator[None]:
    pid = crowd.pid("valkey")
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def stall(crowd: Crowd, *, at: float) -> Stall:
    eventually(lambda: wall_clock() >= at, seconds=60)
    with standing_still(crowd):
        began = wall_clock()
        eventually(lambda: wall_clock() >= began + STALLS_FOR, seconds=60)
    return Stall(began, wall_clock())


def too_many(came: Sequence[float]) -> list[tuple[float, float, int]]:
    """Name each window, from one arrival to another, with more than the law allows: its begin, its length and its count."""
    return [
        (came[i] - came[0], came[j] - came[i], j - i + 1)
        for i in range(len(came))
        for j in range(i, len(came))
        if j - i + 1 > RATE * (came[j] - came[i] + VOID_AFTER) + BURST
    ]


def test_the_carrier_sees_a_routes_rate_and_no_more_in_any_window(metered: Crowd) -> None:
    numbers = [new_number() for _ in range(PEOPLE)]
    metered.slow(low_ms=20, high_ms=200)
    with metered.beside(*SIX_MORE) as log:
        eventually(lambda: " ready." in log.read_text(), seconds=60)
        events = post_all(metered, numbers)
        first = eventually(partial(arrivals, metered, numbers), seconds=30)[0]
        still = stall(metered, at=first + STALLS_AT)
        eventually(lambda: wall_clock() >= first + LASTS, seconds=60)
        came = arrivals(metered, numbers)
        eventually(lambda: metered.asked(OPEN, events), until=lambda left: not left, seconds=60)

    assert too_many(came) == []
    outside = [at for at in came if at < first + LASTS and not still.began <= at < still.ended]
    assert len(outside) > 0.9 * RATE * (LASTS - (still.ended - still.began)), Counter(int(at - first) for at in came)
    assert Counter(Counter(row["to"] for row in taken(metered) if row["to"] in numbers).values()) == {OCCASIONS: PEOPLE}


def taken(crowd: Crowd) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = crowd.house.client.get(f"{crowd.house.ready['simulator_url']}/_sim/accepted").json()
    return rows
