"""Caps are counted at the gate, in the order of commits: no clock of a transaction lets a handoff slip past them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from policy.words import Reason
from tests.making import NOON, Standing, claim, committing, lease, make_house, make_queued, outbox_of, prepare_all, sample

SECOND = timedelta(seconds=1)
CAPS = [{"limit": 1, "window": "6h", "per": "category"}]


def leased_at(engine: Engine, standing: Standing, *, seconds: int) -> Standing:
    """Decide and lease an attempt in a transaction of its own, by a clock that says so many seconds after noon."""
    with committing(engine) as dispatching:
        return lease(dispatching, standing, now=NOON + seconds * SECOND)


@pytest.fixture
def pair(fresh_database: Engine) -> tuple[Standing, Standing]:
    """Two messages to one person, of which six hours take one; the first is leased, the second due a second later."""
    with committing(fresh_database) as session:
        house = make_house(session, policy=sample(cooldown="0s", caps=CAPS))
        first = make_queued(session, house, subject="c-1")
        second = make_queued(session, house, subject="c-2", not_before="2026-12-01T17:00:01Z")
    return leased_at(fresh_database, first, seconds=0), second


def test_a_handoff_that_commits_after_a_decision_with_a_later_clock_is_counted(
    fresh_database: Engine, pair: tuple[Standing, Standing]
) -> None:
    """The first began earlier and commits later: its time lies before the decision that did not see it."""
    first, second = pair

    with Session(fresh_database) as preparing, preparing.begin():
        assert len(prepare_all(preparing, first, now=NOON + SECOND).handoffs) == 1
        second = leased_at(fresh_database, second, seconds=2)
    with committing(fresh_database) as later:
        held = prepare_all(later, second, now=NOON + 3 * SECOND)

    assert held.put_back == {second.attempt_id: Reason.FREQUENCY_CAP}
    with committing(fresh_database) as again:
        assert claim(again, second.house, now=NOON + 4 * SECOND) == []
        assert outbox_of(again, second).due_at == NOON + SECOND + timedelta(hours=6)


def test_a_handoff_that_the_decision_counted_does_not_hold_it(fresh_database: Engine) -> None:
    """Room for two: the second saw the first and goes, at the same instant if need be."""
    with committing(fresh_database) as session:
        house = make_house(session, policy=sample(cooldown="0s", caps=[CAPS[0] | {"limit": 2}]))
        first = lease(session, make_queued(session, house, subject="c-1"))
        assert len(prepare_all(session, first).handoffs) == 1
        second = lease(session, make_queued(session, house, subject="c-2"))

        assert len(prepare_all(session, second).handoffs) == 1
