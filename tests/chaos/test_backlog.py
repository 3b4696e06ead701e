"""A hundred thousand bulk texts are due and the carrier is slow: no lease runs out, no token is burnt, urgent ones pass."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Final

import pytest

from local.state import temporary_folder
from tests.chaos.backlog import OVERTAKEN, WAITING, Backlog
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import furnish
from tests.conftest import World
from tests.e2e.house import environment_of, running_house

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

PEOPLE: Final = 20
TOTAL: Final = 100_000
WINDOW: Final = 8
AT_ONCE: Final = 2 * WINDOW
"""What the two processes of the lane may hold, and what dispatch may lease beyond it: one window for each."""
# A queue of a whole round too many would lose its leases: an answer takes two seconds.
SHORT: Final = {"DAYBOOK_HANDOFF_SECONDS": "4", "DAYBOOK_LEASE_SECONDS": "10", "DAYBOOK_WINDOW": str(WINDOW)}
ENOUGH: Final = 8 * AT_ONCE
"""Eight rounds of two seconds: what dispatch leased too much of in the first would be lost by now."""


@pytest.fixture(scope="module")
def backlog(world: World) -> Iterator[Backlog]:
    with (
        temporary_folder() as folder,
        running_house(folder, environment_of(world.engine.url, "backlog", redis_db=12) | SHORT) as running,
    ):
        policy = hasty_policy()
        del policy["categories"]["marketing"]["hours"]
        templates = {"class-opening": "transactional", "offer": "marketing"}
        crowd = furnish(running, tenant="busy", policy=policy, templates=templates, rate_per_second=20, burst_count=100_000)
        made = Backlog(crowd, rate_per_second=20)
        made.hold()
        made.fill(crowd.post(PEOPLE, template="offer"), copies_of_each=TOTAL // PEOPLE - 1)
        yield made
        crowd.valkey.close()


def overtaken_by_urgent(backlog: Backlog, *, at_least: int) -> int:
    """Post an urgent event once so much bulk is on its way; count the bulk that was begun before it all the same."""
    backlog.await_handed_off(at_least)
    (urgent,) = backlog.crowd.post(1)
    backlog.crowd.house.await_state(urgent, "delivered")
    return int(backlog.sql(OVERTAKEN, urgent)[0][0])


def test_a_backlog_neither_loses_its_leases_nor_burns_tokens_nor_stands_before_what_is_urgent(backlog: Backlog) -> None:
    crowd = backlog.crowd
    crowd.slow(low_ms=1800, high_ms=2200)
    assert backlog.sql(WAITING) == [(TOTAL,)]
    backlog.let_go()

    overtaken = [overtaken_by_urgent(backlog, at_least=rounds * AT_ONCE) for rounds in (1, 3, 6)]
    backlog.await_handed_off(ENOUGH)
    backlog.hold()

    handed_off, urgent_count = backlog.handed_off(), len(overtaken)
    assert max(overtaken) <= 2 * AT_ONCE, "the urgent ones stood behind bulk"
    # A token may grow old before the write, and what comes back is less by what the bucket gained meanwhile: workers tell of
    # both, and no other token was burnt.
    replaced, gained = backlog.tokens_lost()
    assert 0 <= backlog.tokens_taken() - (handed_off + urgent_count + replaced) <= ceil(gained)
    assert backlog.sql(WAITING) == [(TOTAL - handed_off,)]
    taken = crowd.house.client.get(f"{crowd.house.ready['simulator_url']}/_sim/accepted").json()
    assert len(taken) == handed_off + urgent_count
    crowd.assert_balanced()
