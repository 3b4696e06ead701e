"""Two beats at once, and no beat at all: sweeps are safe to run twice, and workers notice when nobody rings."""

from __future__ import annotations

import os
import signal

import pytest

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

pytestmark = [pytest.mark.processes, pytest.mark.chaos]


def test_two_beats_double_nothing(house: Crowd) -> None:
    house.slow(low_ms=100, high_ms=500)
    with house.beside("celery", "-A", "tasks.celery", "beat", "-S", "celery.beat:Scheduler", "-l", "INFO"):
        beat = house.pid("beat")
        assert beat is not None
        os.kill(beat, signal.SIGSTOP)
        try:
            house.await_beats()  # so the other one ticks
        finally:
            os.kill(beat, signal.SIGCONT)
        events = house.post_together(20) + house.post(10)

        house.assert_one_text_each(events)


def test_without_beat_the_workers_watch_carries_on(house: Crowd) -> None:
    """A stopped process is alive to its supervisor and silent to everyone else."""
    beat = house.pid("beat")
    assert beat is not None
    os.kill(beat, signal.SIGSTOP)
    try:
        subject = house.insert()
        delivered = "SELECT 1 FROM event e JOIN intent i ON i.event_id = e.id WHERE e.subject = %s AND i.state = 'delivered'"
        eventually(lambda: house.house.sql(delivered, subject), seconds=40)

        assert "beat" in house.house.daybook("doctor").stdout
    finally:
        os.kill(beat, signal.SIGCONT)
