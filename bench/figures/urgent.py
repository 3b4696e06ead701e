"""Urgent: from acceptance until the carrier has the text, idle and while bulk drains, by the Procfile's processes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from app.ground.errors import DaybookError
from bench import traffic
from bench.carrier import arrivals, open_carrier
from bench.figure import Sitting
from bench.gauge import Gauge, Reading, percentile
from bench.house import House, sql, stopwatch
from bench.tape import Tape, record_accepted
from bench.town import BULK, URGENT, Town, events, numbers, settle

PROCESSES: Final = ("web", "worker", "worker_bulk", "beat")
LIMIT: Final = 5.0
PER_SECOND: Final = 10
"""Urgent events: far from what saturates two cores, so that what is measured is the way and not a queue."""
SPELL: Final = 10
"""Events between two looks whether bulk still drains."""
CONNECTIONS: Final = 8
WARM_UP: Final = 50
LOADS: Final = 20
PAGE: Final = 10_000
LOOK_EVERY_SECONDS: Final = 0.25
LONGEST_SECONDS: Final = 120.0
SEED: Final = 20_261_130

DRAINING: Final = "SELECT EXISTS (SELECT FROM outbox WHERE lane = 'bulk' AND due_at <= now())::int"
HANDED: Final = "SELECT count(*) FROM attempt WHERE state <> 'queued'"
ACCEPTED: Final = "SELECT recipient_ref, extract(epoch FROM accepted_at)::float8 FROM event WHERE tenant_id = %s"


class NeverLoaded(DaybookError):
    """Bulk drained faster than urgent events could be sampled."""


class NeverArrived(DaybookError):
    """The carrier did not get every urgent text."""


@dataclass(slots=True)
class Sampled:
    """The urgent events of one condition: whom they went to, and when their requests were written."""

    sent_at: dict[int, float] = field(default_factory=dict)
    """By the event's number; on the machine's clock."""
    bulk_per_second: float = 0.0
    loads: int = 0


def urgent(sitting: Sitting, count: int, bulk: int) -> list[Gauge]:
    """Post urgent events as people come, without and with so many bulk events in the outbox."""
    house = sitting.house
    house.wipe(scratch=False)
    with open_carrier(house) as (base_url, book):
        town = settle("urgent", carrier="twilio", base_url=base_url)
        load = _Load(house, record_accepted(house, sitting.plain, BULK), bulk)
        asked = _requests(town)
        with house.running(*PROCESSES):
            _sample(house, asked, min(WARM_UP, count // 2), always)
            idle = _sample(house, asked, count, always)
            loaded = _sample_loaded(house, asked, count, load)
            ended = _wait_for(book, [*idle.sent_at, *loaded.sent_at])
        began = _accepted(house, town)
    whens = {
        "idle": [1000 * (ended[n] - began[n]) for n in idle.sent_at],
        "loaded": [1000 * (ended[n] - began[n]) for n in loaded.sent_at],
    }
    posted = {
        "idle": [1000 * (ended[n] - at) for n, at in idle.sent_at.items()],
        "loaded": [1000 * (ended[n] - at) for n, at in loaded.sent_at.items()],
    }
    return [
        Gauge(
            name="urgent",
            ours=f"accepted -> the carrier has it, while {bulk:,} bulk events drain",
            against="the same, idle",
            readings=_readings(whens, posted, loaded),
            sizes={"samples": count, "bulk": bulk, "loads": loaded.loads, "per_second": PER_SECOND},
            details={"milliseconds": {name: [round(one, 2) for one in sorted(found)] for name, found in whens.items()}},
        )
    ]


def _readings(whens: dict[str, list[float]], posted: dict[str, list[float]], loaded: Sampled) -> list[Reading]:
    idle_p99, loaded_p99 = percentile(whens["idle"], 99), percentile(whens["loaded"], 99)
    return [
        Reading("p99 loaded beside p99 idle", round(loaded_p99 / idle_p99, 2), "times", at_most=LIMIT),
        Reading("p50 idle", round(percentile(whens["idle"], 50), 1), "ms", goal=15),
        Reading("p99 idle", round(idle_p99, 1), "ms", goal=60),
        *(Reading(f"p{percent:g} loaded", round(percentile(whens["loaded"], percent), 1), "ms") for percent in (50, 99, 100)),
        *(
            Reading(f"p{percent} {name}, from the request's first byte", round(percentile(posted[name], percent), 1), "ms")
            for name in posted
            for percent in (50, 99)
        ),
        Reading("bulk handed off meanwhile", round(loaded.bulk_per_second), "per second", note=f"loaded {loaded.loads} times"),
    ]


def _requests(town: Town) -> Iterator[tuple[int, bytes]]:
    """Write one request after the other, each to a number of its own, from the number that the warm-up starts with."""
    headers = {"Authorization": f"Bearer {town.api_key}", "Content-Type": "application/json"}
    for n, event in enumerate(events(len(numbers()), template=URGENT)):
        yield n, traffic.request("POST", "/v1/events", orjson.dumps(event), headers)


def always() -> bool:
    """Ask nothing of a spell."""
    return True


def _sample(house: House, asked: Iterator[tuple[int, bytes]], count: int, is_good: Callable[[], bool]) -> Sampled:
    """Post so many events, some spells of them; what a spell is no good for is not counted."""
    sampled = Sampled()
    chance = random.Random(SEED)  # noqa: S311 - spreads requests as people come
    with closing(traffic.Paced(house.base_url, connections=CONNECTIONS)) as paced:
        while len(sampled.sent_at) < count:
            spell = [next(asked) for _ in range(SPELL)]
            gaps = [chance.expovariate(PER_SECOND) for _ in spell]
            sent = paced.post([request for _, request in spell], gaps, status=202)
            if is_good():
                sampled.sent_at.update({n: at for (n, _), at in zip(spell, sent, strict=True)})
    return sampled


@dataclass(slots=True)
class _Load:
    """Accepted bulk events, copied set-based from one that the application accepted."""

    house: House
    tape: Tape
    size: int
    count: int = 0

    def put(self) -> None:
        """Put another load into the outbox."""
        with self.house.connect() as connection:
            for lo in range(self.count + 1, self.count + self.size + 1, PAGE):
                hi = min(lo + PAGE - 1, self.count + self.size)
                with connection.transaction():
                    for statement in self.tape.insertions("accepted", str(lo), str(hi)):
                        connection.execute(sql(statement))
            connection.execute("ANALYZE")
        self.count += self.size


def _sample_loaded(house: House, asked: Iterator[tuple[int, bytes]], count: int, load: _Load) -> Sampled:
    loads = 0

    def put() -> None:
        nonlocal loads
        if loads == LOADS:
            raise NeverLoaded(f"{LOADS} loads of {load.size:,} bulk events drained meanwhile: ask for larger ones")
        load.put()
        loads += 1

    def is_loaded() -> bool:
        if house.count(DRAINING):
            return True
        put()  # the spell that has just ended saw the outbox run empty
        return False

    put()
    before, started = house.count(HANDED), stopwatch()
    sampled = _sample(house, asked, count, is_loaded)
    sampled.bulk_per_second = (house.count(HANDED) - before) / (stopwatch() - started)
    sampled.loads = loads
    return sampled


def _accepted(house: House, town: Town) -> dict[int, float]:
    """Read when Postgres says that each event's acceptance began."""
    with house.connect() as connection:
        return {int(ref.removeprefix("m-")): at for ref, at in connection.execute(ACCEPTED, [town.tenant_id])}


def _wait_for(book: Path, expected: list[int]) -> dict[int, float]:
    """Wait until every text arrived; give when, by the event's number."""
    names, deadline = numbers(), time.monotonic() + LONGEST_SECONDS
    while True:
        found = arrivals(book)
        if all(names[n] in found for n in expected):
            return {n: found[names[n]] for n in expected}
        if time.monotonic() > deadline:
            missing = sum(names[n] not in found for n in expected)
            raise NeverArrived(f"{missing} of {len(expected)} urgent texts did not arrive")
        time.sleep(LOOK_EVERY_SECONDS)
