"""Valkey emptied, killed, and back with an older state: work, cooldowns and counts are not in there."""

from __future__ import annotations

import shutil
import signal
import time

import pytest

from tests.chaos.crowd import Crowd
from tests.e2e.house import new_number

pytestmark = [pytest.mark.processes, pytest.mark.chaos]


def test_emptied_again_and_again_while_events_come_in(house: Crowd) -> None:
    house.slow(low_ms=20, high_ms=300)
    events: list[str] = []
    for _ in range(8):
        events += house.post(5)
        house.valkey.flushall()
        time.sleep(0.1)

    house.assert_one_text_each(events)


def test_emptied_between_prepared_and_the_first_byte(house: Crowd) -> None:
    house.slow(low_ms=20, high_ms=50)
    with house.held("flows.handoff._prepare/committed#1"):
        events = house.post(20)
        house.await_held()
        house.valkey.flushall()

    house.assert_one_text_each(events)


def test_what_was_in_a_queue_is_leased_again_after_its_lease(house: Crowd) -> None:
    """The messages are gone, not only late: the books alone bring the work back."""
    house.slow(low_ms=20, high_ms=50)
    with house.held("flows.handoff._prepare/before_commit"):  # every process of the lane stands still
        events = house.post_together(40)
        house.await_queued(3)
        house.valkey.flushall()

    house.assert_one_text_each(events)


def test_killed_and_back_with_nothing(house: Crowd) -> None:
    house.slow(low_ms=100, high_ms=400)
    house.valkey.set("lost", 1)
    events = house.post(30)
    shutil.rmtree(house.house.folder / "state" / "servers" / "valkey" / "appendonlydir")
    house.kill("valkey", signal.SIGKILL)
    house.await_ready()
    events += house.post(10)

    assert not house.valkey.exists("lost")
    house.assert_one_text_each(events)


def test_back_with_the_messages_of_a_while_ago(house: Crowd) -> None:
    """It stopped writing its log, then died: what it hands out again was done long since."""
    house.slow(low_ms=20, high_ms=50)
    house.valkey.set("kept", 1)
    with house.held("flows.handoff._prepare/before_commit"):
        events = house.post_together(40)
        house.await_queued(3)
        house.valkey.config_set("appendonly", "no")
        house.valkey.set("lost", 1)
    house.ends(events)
    house.kill("valkey", signal.SIGKILL)
    house.await_ready()
    events += house.post(10)

    assert house.valkey.exists("kept")
    assert not house.valkey.exists("lost")
    house.assert_one_text_each(events)


def test_a_cooldown_that_was_taken_is_kept_when_everything_in_valkey_is_gone(patient: Crowd) -> None:
    member = {"ref": "m-cool", "sms": new_number()}
    first = patient.house.post(patient.house.request() | {"recipient": member})["event_id"]
    patient.house.await_state(first, "delivered")
    patient.valkey.flushall()
    second = patient.house.post(patient.house.request() | {"recipient": member})["event_id"]

    waiting = patient.house.await_state(second, "deferred")
    patient.await_beats()

    assert patient.house.history(second) == waiting
    assert waiting[-1]["reason"] == "cooldown"
    assert len(patient.house.accepted(member["sms"])) == 1
