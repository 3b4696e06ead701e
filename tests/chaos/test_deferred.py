"""Fifty thousand texts are put off, everything is down for three hours: what has grown too old meanwhile does not leave."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest

from local.state import temporary_folder
from tests.awaiting import eventually
from tests.chaos.backlog import Backlog
from tests.chaos.crowd import Crowd, furnish
from tests.chaos.deferred import MAX_AGE, MINUTE, Plan, make_plan, put_off
from tests.conftest import World
from tests.e2e.conftest import impatient_policy
from tests.e2e.house import House, environment_of, running_house

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

TOTAL: Final = 50_000
COPIES: Final = 100
PASSED, ENDING = 20, 30
ENDING_FOR: Final = timedelta(seconds=15)
RATE: Final = 500
SAMPLE: Final = 500
"""How many must have gone out before we look."""
# While the carrier is slow, fewer leave in a second than end in it: so the claim stands where they are about to
# end, and a lease waits some seconds for a worker.
WINDOW: Final = {"DAYBOOK_WINDOW": "32"}
SLOW_MS, FAST_MS = (1500, 2000), (10, 50)
FLIGHT: Final = timedelta(seconds=1)
"""What was written in time may be on its way: we look at our clock just before we write, the carrier just after it read.
A lease that is not looked at again is longer in the queue than that."""

STILL_OPEN: Final = """
SELECT count(*) FROM outbox o JOIN intent i ON i.id = o.intent_id WHERE i.category = 'marketing' AND i.expires_at <= %s
"""
# What became of each: waiting in time, closed with the transition that says so, or at the carrier. What was
# prepared, and refused by the transport because its end had come, has no time left to go again; and what has to
# wait for a moment after its end is told so at once.
ENDS: Final = """
SELECT split_part(e.subject, '-', 1),
       CASE WHEN i.closed_at IS NULL AND o.due_at < 'infinity' AND i.expires_at > clock_timestamp() THEN 'waiting'
            WHEN o.attempt_id IS NULL AND i.closed_at >= i.expires_at
                 AND (i.state, i.reason, t.state, t.reason) = ('expired', 'expired', 'expired', 'expired') THEN 'expired'
            WHEN i.closed_at IS NOT NULL AND (i.state, i.reason, t.state) = ('failed', 'not_handed_off', 'failed') THEN 'stopped'
            WHEN o.attempt_id IS NULL AND (i.state, i.reason) = ('expired', 'would_expire')
                 AND (t.state, t.reason) = ('expired', 'would_expire') THEN 'hopeless'
            WHEN o.attempt_id IS NULL AND i.state IN ('in_flight', 'delivered') THEN 'handed_off'
            ELSE concat_ws(' ', 'lost:', i.state, i.reason, t.state, t.reason) END,
       count(*)
FROM event e JOIN intent i ON i.event_id = e.id LEFT JOIN outbox o ON o.intent_id = i.id
JOIN transition t ON t.intent_id = i.id AND t.n = i.transition_count
WHERE e.category = 'marketing' GROUP BY 1, 2
"""
OFFERS: Final = """
SELECT a.attempt_key, split_part(e.subject, '-', 1) FROM attempt a JOIN event e ON e.id = a.event_id
WHERE a.attempt_key = ANY(%s)
"""


@dataclass
class Resumed:
    """A house that was down while time went on, and what was waiting in it."""

    crowd: Crowd
    plan: Plan
    waiting: int

    @cached_property
    def journal(self) -> list[tuple[datetime, str]]:
        """Say of each text that the carrier accepted when, by its own clock, and to which offer it belongs."""
        taken = self.crowd.house.client.get(f"{self.crowd.house.ready['simulator_url']}/_sim/accepted").json()
        offers = dict(self.crowd.house.sql(OFFERS, [_key(row) for row in taken]))
        return [(datetime.fromtimestamp(row["accepted_at"], UTC), offers[_key(row)]) for row in taken]

    def too_late(self) -> list[tuple[str, datetime, datetime]]:
        """Name the texts that left after their end, with the carrier's time and that end."""
        ends_at = {offer.subject: offer.ends_at for offer in self.plan.offers}
        return [(offer, at, ends_at[offer]) for at, offer in self.journal if at >= ends_at[offer] + FLIGHT]

    def ends(self, name: str) -> Counter[str]:
        """Count what became of all copies of the offers of a name."""
        found: Counter[str] = Counter()
        for offer, end, count in self.crowd.house.sql(ENDS):
            found[end] += count if offer.rstrip("0123456789") == name else 0
        return +found


def _key(row: Mapping[str, Any]) -> str:
    """Find the attempt's key in the URL that the carrier was given for its receipts."""
    (key,) = parse_qs(urlsplit(str(row["receipt_url"])).query)["key"]
    return key


@pytest.fixture(scope="module")
def resumed(world: World) -> Iterator[Resumed]:
    with temporary_folder() as folder:
        environment = environment_of(world.engine.url, "deferred", redis_db=3) | WINDOW
        began = time.monotonic()
        with running_house(folder, environment) as before:
            starts_in = timedelta(seconds=time.monotonic() - began)
            crowd = _furnish(before)
        now = _clock(before)
        ample = TOTAL // COPIES - PASSED - ENDING
        # The second start takes about as long as the first, or up to twice, on top of a backlog.
        back, ending_for = now + starts_in, starts_in + ENDING_FOR
        plan = make_plan(now=now, resumed_at=back, passed=PASSED, ending=ENDING, ample=ample, ending_for=ending_for)
        waiting = put_off(before.ready["database_url"], crowd.tenant, plan, copies_of_each=COPIES - 1)
        with running_house(folder, environment) as after:
            assert after.ready["simulator_url"] == before.ready["simulator_url"], "the route leads there"
            crowd = Crowd(after.as_tenant(crowd.house.api_key), crowd.tenant)
            yield Resumed(crowd, plan, waiting)
            crowd.valkey.close()


def _clock(house: House) -> datetime:
    """Ask Postgres what time it is; it runs on while the house is down."""
    now: datetime = house.sql("SELECT clock_timestamp()")[0][0]
    return now.astimezone(UTC)


def _furnish(house: House) -> Crowd:
    """Add a tenant whose offers may go since an hour ago, and not when they were accepted."""
    policy = impatient_policy(opens_at=(_clock(house) - 60 * MINUTE).replace(second=0, microsecond=0))
    policy["categories"]["marketing"]["max_age"] = f"{MAX_AGE // MINUTE}m"
    templates = {"offer": "marketing"}
    return furnish(house, tenant="down", policy=policy, templates=templates, rate_per_second=RATE, burst_count=RATE)


def test_what_ended_while_everything_was_down_expires_and_only_what_is_in_time_leaves(resumed: Resumed) -> None:
    """By the carrier's clock: not a text that is older than its end or its category's maximum age."""
    crowd, plan = resumed.crowd, resumed.plan
    assert resumed.waiting == TOTAL
    backlog = Backlog(crowd, rate_per_second=RATE)

    crowd.slow(low_ms=SLOW_MS[0], high_ms=SLOW_MS[1])
    eventually(lambda: backlog.sql(STILL_OPEN, plan.last_end), until=lambda rows: rows == [(0,)], seconds=60)
    crowd.slow(low_ms=FAST_MS[0], high_ms=FAST_MS[1])
    eventually(backlog.handed_off, until=lambda count: count >= SAMPLE, seconds=60)
    backlog.hold()

    assert resumed.too_late() == []
    passed, ending, ample = (resumed.ends(name) for name in ("passed", "ending", "ample"))
    assert passed == {"expired": PASSED * COPIES}
    assert ending.keys() <= {"expired", "hopeless", "stopped", "handed_off"}
    assert ample.keys() <= {"waiting", "handed_off"}
    assert (passed + ending + ample).total() == TOTAL
    assert len(resumed.journal) == ending["handed_off"] + ample["handed_off"]
    crowd.assert_balanced()
