"""Footprint: what a delivered event leaves on disk, writes and commits on the way, and what the processes hold in memory."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from bench import traffic
from bench.carrier import open_carrier
from bench.figure import Sitting
from bench.figures.pipeline import NeverDone
from bench.figures.receipts import callbacks
from bench.gauge import Gauge, Reading
from bench.house import KEPT, House, stopwatch
from bench.town import Town, events, settle
from local.processes import PROC, session_members

PROCESSES: Final = ("web", "worker", "worker_bulk", "beat")
RAW: Final = "receipt_raw"
# One row per person, however many events they get; here each event is to somebody new.
PEOPLE: Final = frozenset({"person_key", "contact", "gate"})
KIBIBYTE: Final = 1024
MEBIBYTE: Final = 1024 * KIBIBYTE
WITH_RAW: Final = 8 * KIBIBYTE
WITHOUT_RAW: Final = 5 * KIBIBYTE
CONNECTIONS: Final = 8
IDLE_SECONDS: Final = 10.0
# Rarely: each look is a commit of its own.
LOOK_EVERY_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0

SIZES: Final = """
SELECT s.relname, pg_total_relation_size(s.relid), pg_indexes_size(s.relid), greatest(c.reltuples, 0)::int
FROM pg_stat_user_tables s JOIN pg_class c ON c.oid = s.relid
"""
SUBMITTED: Final = "SELECT count(*) FROM attempt WHERE state = 'submitted'"
SETTLED: Final = """
SELECT count(*) FROM attempt a WHERE a.state = 'delivered'
  AND EXISTS (SELECT FROM receipt r WHERE r.attempt_id = a.id AND r.status = 'observed') AND NOT EXISTS (SELECT FROM feed_pending)
"""
WRITTEN: Final = """
SELECT w.wal_bytes::float8, w.wal_records::float8, w.wal_fpi::float8, d.xact_commit::float8
FROM pg_stat_wal w, pg_stat_database d WHERE d.datname = current_database()
"""


@dataclass(frozen=True, slots=True)
class Size:
    """What a table takes."""

    total_bytes: int
    index_bytes: int
    row_count: int


@dataclass(frozen=True, slots=True)
class Written:
    """What the server has written and committed since it started."""

    wal_bytes: float
    wal_records: float
    full_pages: float
    commits: float

    def since(self, before: Written) -> Written:
        """Give what came after another moment."""
        return Written(
            self.wal_bytes - before.wal_bytes,
            self.wal_records - before.wal_records,
            self.full_pages - before.full_pages,
            self.commits - before.commits,
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """What one process of the Procfile holds, its children included."""

    processes: int
    rss_bytes: int
    pss_bytes: int
    """Memory that several share counts in parts."""


def footprint(sitting: Sitting, count: int) -> list[Gauge]:
    """Post events one by one, hand them to a carrier over HTTP, call with the receipt of each; weigh what is left.

    Half of them come before what is weighed: from then on, what rows left behind as they changed is used again.
    """
    house, half = sitting.house, count // 2
    with open_carrier(house) as (base_url, _):
        town = settle("footprint", carrier="twilio", base_url=base_url)
        idle, idle_seconds = _idle(house, min(IDLE_SECONDS, count / 50))
        house.wipe(scratch=False)
        before, started = _written(house), stopwatch()
        asked = _requests(town, 2 * half)
        with house.running(*PROCESSES) as pids:
            _deliver(house, town, asked[:half], half)
            first = _vacuumed(house)
            _deliver(house, town, asked[half:], 2 * half)
            memory = {name: _memory(pid) for name, pid in pids.items()}
        # With their processes gone, backends have told all that they wrote.
        written, seconds = _written(house).since(before), stopwatch() - started
    last = _vacuumed(house)
    left = {name: (size.total_bytes - first[name].total_bytes) / half for name, size in last.items()}
    return [
        Gauge(
            name="footprint",
            ours="what one delivered event takes",
            against="no counterpart",
            readings=[*_bytes(left), *_work(written, 2 * half), *_at_rest(idle, idle_seconds), *_held(memory)],
            sizes={"events": 2 * half, "weighed": half, "connections": CONNECTIONS, "seconds": round(seconds, 1)},
            details={"per_event": _by_table(left, last, 2 * half)},
        )
    ]


def _requests(town: Town, count: int) -> list[bytes]:
    headers = {"Authorization": f"Bearer {town.api_key}", "Content-Type": "application/json"}
    return [traffic.request("POST", "/v1/events", orjson.dumps(event), headers) for event in events(count)]


def _deliver(house: House, town: Town, requests: Sequence[bytes], delivered: int) -> None:
    """Post these events and call with their receipts, until so many are delivered in all."""
    traffic.post(house.base_url, requests, connections=CONNECTIONS).only(202)
    _wait(house, SUBMITTED, len(requests))
    traffic.post(house.base_url, callbacks(house, town), connections=CONNECTIONS).only(200)
    _wait(house, SETTLED, delivered)


def _wait(house: House, statement: str, count: int) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while (found := house.count(statement)) != count:
        if time.monotonic() > deadline:
            raise NeverDone(f"{found} of {count} after {LONGEST_SECONDS:.0f} seconds: {' '.join(statement.split())}")
        time.sleep(LOOK_EVERY_SECONDS)


def _idle(house: House, seconds: float) -> tuple[Written, float]:
    """Let the processes sweep an empty ledger; give what that wrote, and in how long."""
    house.wipe(scratch=False)
    before, started = _written(house), stopwatch()
    with house.running(*PROCESSES):
        time.sleep(seconds)
    return _written(house).since(before), stopwatch() - started


def _vacuumed(house: House) -> dict[str, Size]:
    """Give what each table takes once what is dead in it can be used again."""
    with house.connect() as connection:
        connection.execute("VACUUM ANALYZE")
        return {str(name): Size(*sizes) for name, *sizes in connection.execute(SIZES) if name not in KEPT}


def _by_table(left: Mapping[str, float], sizes: Mapping[str, Size], count: int) -> dict[str, dict[str, float]]:
    """Tell what takes the room, the largest first: what an event adds, and how that is made up."""
    return {
        name: {
            "bytes": round(left[name], 1),
            "share_of_indexes": round(sizes[name].index_bytes / sizes[name].total_bytes, 2),
            "rows": round(sizes[name].row_count / count, 2),
        }
        for name in sorted(left, key=lambda name: -left[name])
        if left[name]
    }


def _written(house: House) -> Written:
    with house.connect() as connection:
        row = connection.execute(WRITTEN).fetchone()
    return Written(*row) if row else Written(0, 0, 0, 0)


def _memory(pid: int) -> Memory:
    """Add up a process and all that it started: each of the Procfile's is a session of its own."""
    members = session_members(pid)
    told = [found for member in members if (found := _rollup(PROC / str(member) / "smaps_rollup"))]
    return Memory(len(told), sum(rss for rss, _ in told), sum(pss for _, pss in told))


def _rollup(file: Path) -> tuple[int, int] | None:
    try:
        text = file.read_text()
    except OSError:  # it has ended meanwhile
        return None
    found = {name: int(size) * KIBIBYTE for name, size in re.findall(r"^(Rss|Pss): +(\d+) kB$", text, re.MULTILINE)}
    return (found["Rss"], found["Pss"]) if found else None


def _bytes(left: Mapping[str, float]) -> Sequence[Reading]:
    total, raw, people = sum(left.values()), left[RAW], sum(left[name] for name in PEOPLE)
    return [
        Reading("on disk with raw calls", round(total), "bytes per delivered event", at_most=WITH_RAW),
        Reading("on disk without raw calls", round(total - raw), "bytes per delivered event", at_most=WITHOUT_RAW),
        Reading("of it, once per person", round(people), "bytes", note="here every event is to a new person"),
    ]


def _work(written: Written, count: int) -> Sequence[Reading]:
    pages = f"{written.full_pages:,.0f} full pages after checkpoints among them"
    return [
        Reading("journal", round(written.wal_bytes / count), "bytes per event", note=pages),
        Reading("journal records", round(written.wal_records / count, 1), "per event"),
        Reading("commits", round(written.commits / count, 1), "per event", note="reads and sweeps included"),
    ]


def _at_rest(idle: Written, seconds: float) -> Sequence[Reading]:
    note = "start and end of the processes included"
    return [
        Reading("commits at rest", round(idle.commits / seconds, 1), "per second", note=note),
        Reading("journal at rest", round(idle.wal_bytes / seconds), "bytes per second", note=note),
    ]


def _held(memory: Mapping[str, Memory]) -> Sequence[Reading]:
    return [
        Reading(
            f"memory of {name}",
            round(held.pss_bytes / MEBIBYTE, 1),
            "MiB (PSS)",
            note=f"{held.processes} processes, {held.rss_bytes / MEBIBYTE:.1f} MiB RSS added up",
        )
        for name, held in memory.items()
        if held.processes
    ]
