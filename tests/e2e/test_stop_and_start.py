"""Kill every process in turn, then the supervisor, and start again: nothing is lost, nothing goes out twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from local.processes import fingerprint
from local.state import temporary_folder
from tests.awaiting import eventually
from tests.e2e.house import House, child_environment, new_number, start_house

pytestmark = pytest.mark.processes

EMBEDDED = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "DAYBOOK_PUBLIC_URL", "DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING")
KILLED = ("web", "worker", "worker_bulk", "beat", "flower", "simulator", "valkey", "postgres")
PER_KILL = 6


@pytest.fixture
def folder() -> Iterator[Path]:
    with temporary_folder() as made:
        yield made


def running(house: House) -> dict[str, int]:
    """Give the pids of what runs, by name, as the supervisor recorded them."""
    rows = json.loads((house.folder / "state" / "run" / "processes.json").read_text())
    return {row["name"]: row["pid"] for row in rows if fingerprint(row["pid"]) == row["mark"]}


def kill(house: House, name: str) -> None:
    """Kill a process and its children at once, and wait until another one runs in its place."""
    pid = running(house)[name]
    os.killpg(pid, signal.SIGKILL)
    eventually(lambda: running(house).get(name), until=lambda now: now not in {None, pid}, seconds=60)


def await_up(house: House) -> None:
    """Wait until the API answers again."""

    def is_ready() -> bool:
        try:
            return house.call("GET", "/health/ready").status_code == 200
        except OSError:
            return False

    eventually(is_ready, seconds=60)


def post_some(house: House) -> dict[str, str]:
    """Post a few events for people of their own; return their numbers by event."""
    numbers = list(islice(iter(new_number, None), PER_KILL))
    return {house.post(house.request(sms=number))["event_id"]: number for number in numbers}


def test_whatever_is_killed_every_event_becomes_one_text(folder: Path) -> None:
    environment = {name: value for name, value in child_environment().items() if name not in EMBEDDED}
    house = start_house(folder, environment)
    posted: dict[str, str] = {}
    try:
        for name in KILLED:
            posted |= post_some(house)
            kill(house, name)
            await_up(house)
        posted |= post_some(house)
        house.process.kill()  # and with it goes whoever would have cleaned up
        house.process.wait()
        house = start_house(folder, environment)
        posted |= post_some(house)

        for event_id in posted:
            house.await_state(event_id, "delivered", seconds=120)

        assert {number: len(house.accepted(number)) for number in posted.values()} == dict.fromkeys(posted.values(), 1)
        told = house.daybook("audit", "--full")
        assert told.returncode == 0, told.stdout + told.stderr
    finally:
        house.stop()
    assert not (folder / "state" / "ready.json").exists()
