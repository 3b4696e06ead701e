"""Kill -9 at every commit, and just before and after the carrier's bytes: nothing lost, nothing twice."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.awaiting import eventually
from tests.crash.labels import PLACES, labels_of_carriers, labels_of_transact
from tests.crash.provoke import EVERYDAY, PROVOKED, Events, Fate, Provoke, Trouble, all_of_them, ordinary, outcomes_of, unheard
from tests.crash.town import Town, keep_alive
from tests.e2e.house import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

# One for each point that needs one: two places, and once without a kill.
EARLY_COUNT: Final = 3


@pytest.fixture(scope="module")
def trouble(town: Town) -> Trouble:
    made = Trouble(town)
    made.begin(early_count=EARLY_COUNT)
    return made


def points() -> Iterator[tuple[Provoke, str]]:
    """Give every place to die at, as a rule says it, with what brings a process there."""
    for label in sorted(labels_of_transact()):
        for provoke, passing in PROVOKED.get(label, EVERYDAY):
            for place in PLACES:
                yield provoke, f"{label}/{place}#{passing}"
    yield from ((ordinary, f"{label}#1") for label in sorted(labels_of_carriers()))


def has_died(town: Town) -> bool:
    """Wait for the end of this life, and begin the next; False when it went on."""
    until = time.monotonic() + 25
    while (town.folder / "rules").read_text() and time.monotonic() < until:
        keep_alive(town)
        time.sleep(0.02)
    return not (town.folder / "rules").read_text()


def assert_fates(trouble: Trouble, events: Events) -> None:
    """Check that every event ended as it must, at the carrier as in the books."""
    ends = {i: (end, trouble.town.accepted(events[i].number)) for i, end in outcomes_of(trouble, events).items()}
    assert {i: (end, events[i]) for i, end in ends.items() if not is_fate(end, events[i])} == {}
    waiting = "SELECT id FROM inlet WHERE status = 'waiting' OR (status = 'refused' AND event_id IS NOT NULL)"
    assert trouble.town.sql(waiting) == []


def is_fate(end: tuple[str | None, int], fate: Fate) -> bool:
    return end[0] in fate.outcomes and end[1] in fate.text_counts


def test_these_events_pass_every_failpoint_that_the_code_has(trouble: Trouble) -> None:
    """A new transaction needs an event that provokes it: without one no process would ever die there."""
    calls = labels_of_transact()
    every = {f"{label}/{place}" for label in calls for place in PLACES} | labels_of_carriers()
    trouble.town.rule("")

    events: Events = {}
    for provoke in all_of_them():
        events |= provoke(trouble)

    eventually(lambda: every - trouble.town.passed(), until=lambda missing: not missing, seconds=30)
    assert trouble.town.passed() - every == set(), "they wrote, and tests/crash/labels.py took them for readers"
    counted = {label: count for label, count in calls.items() if count != len(PROVOKED.get(label, EVERYDAY))}
    assert counted == {}, "each writing call of these needs a provocation of its own"
    assert_fates(trouble, events)


def test_whatever_place_a_process_dies_at_nothing_is_lost_and_nothing_goes_out_twice(trouble: Trouble) -> None:
    town, events = trouble.town, Events()
    survived: list[str] = []
    for provoke, point in points():
        town.rule(f"{point}=kill")
        begun = provoke(trouble)
        if not has_died(town):
            survived.append(point)
        if provoke is unheard:
            # Whoever dies next with its second text on the way would be one more silence, which its rule answers.
            outcomes_of(trouble, begun)
        events |= begun
    town.rule("")

    assert survived == [], "no process reached these: an event that needs them is missing in tests/crash/provoke.py"
    assert_fates(trouble, events)
    told = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--full"],
        cwd=ROOT,
        env=town.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
