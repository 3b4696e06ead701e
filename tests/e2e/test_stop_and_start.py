"""Kill every process in turn, then the supervisor, and start again: nothing is lost, nothing goes out twice."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import httpx
import pytest

from local.processes import fingerprint
from local.state import temporary_folder
from tests.awaiting import eventually
from tests.e2e.house import House, child_environment, new_number, start_house

pytestmark = pytest.mark.processes

EMBEDDED = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "DAYBOOK_PUBLIC_URL", "DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING")
KILLED = ("web", "worker", "worker_bulk", "beat", "flower", "simulator", "valkey", "postgres")
PER_KILL = 6
IN_FLIGHT = PER_KILL  # a killed worker leaves at most its window in doubt


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
        except httpx.TransportError:
            return False

    eventually(is_ready, seconds=60)


def post_some(house: House) -> dict[str, str]:
    """Post a few events for people of their own; return their numbers by event."""
    numbers = list(islice(iter(new_number, None), PER_KILL))
    return {house.post(house.request(sms=number))["event_id"]: number for number in numbers}


def settlement(house: House, event_id: str) -> str | None:
    """Say how an event ended: delivered, or with a question to a person; None while it goes on."""
    review = house.sql("SELECT cause FROM review WHERE event_id = %s AND settled_at IS NULL", event_id)
    if review:
        return str(review[0][0])
    return "delivered" if house.last(event_id)["state"] == "delivered" else None


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
        house.client.close()
        house = start_house(folder, environment)
        posted |= post_some(house)

        settled = {event_id: eventually(partial(settlement, house, event_id), seconds=120) for event_id in posted}

        # What the carrier has is the truth: one text each, and none for those it never had, which a person is asked about.
        expected = {event_id: 1 if settled[event_id] == "delivered" else 0 for event_id in posted}
        assert {event_id: len(house.accepted(number)) for event_id, number in posted.items()} == expected
        assert list(settled.values()).count("not_found") <= IN_FLIGHT * len(KILLED)
        told = house.daybook("audit", "--full")
        assert told.returncode == 0, told.stdout + told.stderr
    finally:
        house.stop()
    assert not (folder / "state" / "ready.json").exists()
