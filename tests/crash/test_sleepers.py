"""A process that sleeps between `prepared` and its first byte, and one whose commit's answer is lost: one text each."""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path

import pytest

from local.state import free_port
from tests.awaiting import eventually
from tests.crash.town import Town, request

pytestmark = [pytest.mark.processes, pytest.mark.chaos]


def is_stopped(pid: int) -> bool:
    """Say whether the kernel holds a process."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def attempts(town: Town, event_id: str) -> list[tuple[object, ...]]:
    return town.sql("SELECT ordinal, state, error_class FROM attempt WHERE event_id = %s ORDER BY ordinal", event_id)


def test_a_worker_that_slept_past_its_deadline_writes_nothing_when_it_wakes(town: Town) -> None:
    """The other worker asked the carrier twice, found nothing, and a rule let a second attempt go."""
    number = next(town.numbers)
    town.rule("carrier/write#1=stop")
    town.live()
    assert town.process is not None
    event_id = town.insert(request(number))
    eventually(partial(is_stopped, town.process.pid), seconds=30)
    town.rule("")
    other = town.begin(free_port())
    try:
        second = eventually(lambda: attempts(town, event_id), until=lambda a: a[-1][:2] == (2, "delivered"), seconds=60)
        assert second[0] == (1, "unknown", None)

        os.kill(town.process.pid, signal.SIGCONT)
        late = "SELECT 1 FROM observation WHERE event_id = %s AND source = 'answer' AND error_class = 'not_handed_off'"
        eventually(lambda: town.sql(late, event_id), seconds=30)
    finally:
        other.kill()
        other.wait()

    assert town.accepted(number) == 1
    assert town.outcome(event_id) == "delivered"


def test_a_prepare_whose_commit_may_stand_or_not_sends_nothing_and_goes_again(town: Town) -> None:
    number = next(town.numbers)
    town.rule("flows.handoff._prepare/committed#1=lose")
    town.live()

    event_id = town.insert(request(number))

    assert eventually(partial(town.outcome, event_id), seconds=40) == "delivered"
    first, *others, last = attempts(town, event_id)
    # On a busy machine one that goes again can be too late for its carrier: it is not handed off either.
    assert {each[1:] for each in (first, *others)} == {("failed", "not_handed_off")}
    assert last[1:] == ("delivered", None)
    assert town.accepted(number) == 1
