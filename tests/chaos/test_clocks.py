"""Web and workers five minutes fast and five minutes slow, beside a Postgres that is right: its clock is the only one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest

from local.state import temporary_folder
from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import Crowd, furnish
from tests.chaos.skewed import log_of, needs_faketime, skewed_house
from tests.conftest import World
from tests.e2e.conftest import DAYS
from tests.e2e.house import House, environment_of

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.peer, needs_faketime]

FAST, SLOW = "+5m", "-5m"
OFF_BY: Final = {FAST: timedelta(minutes=5), SLOW: timedelta(minutes=-5)}
HANDOFF: Final = timedelta(seconds=3)
LEASE: Final = timedelta(seconds=8)
SHORT: Final = {
    "DAYBOOK_HANDOFF_SECONDS": str(HANDOFF.total_seconds()),
    "DAYBOOK_LEASE_SECONDS": str(LEASE.total_seconds()),
    "WEB_CONCURRENCY": "1",
}
TEMPLATES: Final = {"class-opening": "transactional", "gap": "operational", "island": "marketing"}

OUTBOX: Final = """
SELECT clock_timestamp() AS now, lease, leased_until FROM outbox WHERE event_id = %s AND lease IS NOT NULL
"""
ATTEMPTS: Final = "SELECT ordinal, state, error_class FROM attempt WHERE event_id = %s ORDER BY ordinal"


def clock(house: House) -> datetime:
    """Ask the only clock that is right."""
    now: datetime = house.sql("SELECT clock_timestamp()")[0][0]
    return now.astimezone(UTC)


def hours(*windows: tuple[datetime, datetime]) -> list[dict[str, Any]]:
    """Write opening hours."""
    return [{"id": "hours", "windows": [{"days": DAYS, "start": f"{a:%H:%M}", "end": f"{b:%H:%M}"} for a, b in windows]}]


def rules(now: datetime) -> dict[str, Any]:
    """Give rules by which one category is closed now, and one open; five minutes off, it is the other way round."""
    policy = hasty_policy()
    minute = partial(_minutes_from, now.replace(second=0, microsecond=0))
    policy["categories"]["operational"]["hours"] = hours((minute(-240), minute(-1)), (minute(4), minute(240)))
    policy["categories"]["marketing"]["hours"] = hours((minute(-2), minute(4)))
    return policy


def _minutes_from(start: datetime, minutes: int) -> datetime:
    return start + timedelta(minutes=minutes)


@pytest.fixture(scope="module", params=[(FAST, SLOW), (SLOW, FAST)], ids=["fast-workers", "slow-workers"])
def offsets(request: pytest.FixtureRequest) -> dict[str, str]:
    """Say how far each process is off: the web always to the other side than the workers."""
    workers, web = request.param
    return {"web": web, "worker": workers, "worker_bulk": workers}


@pytest.fixture(scope="module")
def house(world: World, offsets: dict[str, str]) -> Iterator[Crowd]:
    """Give a house whose processes live in another time."""
    environment = environment_of(world.engine.url, "clocks", redis_db=9) | SHORT
    with temporary_folder() as folder:
        (folder / "failpoints").mkdir()
        environment["DAYBOOK_FAILPOINTS"] = str(folder / "failpoints")
        with skewed_house(folder, environment, offsets) as running:
            crowd = furnish(running, tenant="elsewhen", policy=rules(clock(running)), templates=TEMPLATES)
            yield crowd
            crowd.valkey.close()


def post(house: Crowd, **fields: Any) -> str:
    """Post one event for a person of its own."""
    return house.post(1, **fields)[0]


def in_(house: Crowd, **delta: float) -> str:
    """Give an instant from now, as the API takes it."""
    return (clock(house.house) + timedelta(**delta)).isoformat()


def await_passed(house: Crowd, instant: str | datetime) -> None:
    """Wait until an instant has passed, by Postgres's clock."""
    moment = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    eventually(lambda: clock(house.house), until=lambda now: now > moment)


def made_at(made: str) -> datetime:
    """Read the instant at which, by its own clock, a process made an id (UUIDv7: milliseconds in front)."""
    return datetime.fromtimestamp((UUID(made).int >> 80) / 1000, UTC)


def test_the_clocks_are_wrong_and_the_ids_that_they_made_show_it(house: Crowd, offsets: dict[str, str]) -> None:
    """Without this, all that follows would show nothing."""
    event_id = post(house)
    house.house.await_state(event_id, "delivered")

    accepted_at = house.house.sql("SELECT accepted_at FROM intent WHERE event_id = %s", event_id)[0][0]
    answer = house.house.sql("SELECT id::text, observed_at FROM observation WHERE event_id = %s AND source = 'answer'", event_id)[
        0
    ]
    assert made_at(event_id) - accepted_at == pytest.approx(OFF_BY[offsets["web"]], abs=timedelta(minutes=1))
    assert made_at(answer[0]) - answer[1] == pytest.approx(OFF_BY[offsets["worker"]], abs=timedelta(minutes=1))


def test_an_event_that_ends_in_two_minutes_goes_out_and_one_that_ended_a_minute_ago_is_refused(house: Crowd) -> None:
    late = house.house.call("POST", "/v1/events", json=house.house.request(expires_at=in_(house, minutes=-1)))
    timely = post(house, expires_at=in_(house, minutes=2))

    assert (late.status_code, late.json()["code"]) == (422, "already_expired")
    # On a slow machine a handoff may miss its deadline of three seconds, and be made again.
    states = [item["state"] for item in house.house.await_state(timely, "delivered")]
    assert set(states) <= {"queued", "failed", "deferred", "handed_off", "delivered"}
    assert house.texts([timely]) == {timely: 1}


def test_while_paused_an_event_expires_when_its_time_has_come_and_not_before(house: Crowd) -> None:
    pause = ("--tenant", house.tenant, "--category", "transactional", "--reason", "test")
    assert house.house.daybook("pause", *pause).returncode == 0
    try:
        short = post(house, expires_at=in_(house, seconds=2))
        long = post(house, expires_at=in_(house, minutes=2))
        house.house.await_state(short, "expired")
        assert house.house.states(long) == ["queued"]
    finally:
        assert house.house.daybook("resume", *pause).returncode == 0

    house.house.await_state(long, "delivered")
    assert house.texts([short, long]) == {short: 0, long: 1}


def test_what_expires_between_its_lease_and_its_handoff_does_not_leave(house: Crowd) -> None:
    ends_at = in_(house, seconds=5)
    with house.held("flows.dispatch._claim/committed#1"):
        event_id = post(house, expires_at=ends_at)
        await_passed(house, ends_at)

    house.house.await_state(event_id, "expired")
    assert house.texts([event_id]) == {event_id: 0}


def test_hours_open_and_close_by_the_right_clock(house: Crowd) -> None:
    closed = post(house, template="gap", time_zone="UTC")
    opened = post(house, template="island", time_zone="UTC")

    house.house.await_state(opened, "delivered")

    items = house.house.history(closed)
    assert [(item["state"], item["reason"]) for item in items] == [("queued", None), ("deferred", "outside_window")]
    assert datetime.fromisoformat(items[1]["next_at"]) > clock(house.house)
    assert house.texts([closed, opened]) == {closed: 0, opened: 1}


def test_what_may_not_leave_before_an_instant_leaves_right_after_it(house: Crowd) -> None:
    not_before = in_(house, seconds=3)
    event_id = post(house, not_before=not_before)

    house.house.await_state(event_id, "delivered")

    (text,) = house.house.accepted(house.numbers[event_id])
    assert datetime.fromtimestamp(text["accepted_at"], UTC) >= datetime.fromisoformat(not_before)


def test_a_lease_is_not_taken_before_it_has_run_out_and_is_taken_then(house: Crowd) -> None:
    with house.held("flows.dispatch._claim/committed#1"):
        event_id = post(house)
        house.await_held()
        first = house.house.sql(OUTBOX, event_id)[0]
        house.house.await_state(event_id, "delivered")  # by another process, while the first stands

        (lease, prepared_at) = house.house.sql("SELECT lease, prepared_at FROM attempt WHERE event_id = %s", event_id)[0]
        assert lease != first[1]
        assert prepared_at >= first[2]
    assert house.texts([event_id]) == {event_id: 1}


def test_nothing_is_written_after_the_deadline_of_a_handoff(house: Crowd) -> None:
    with house.held("carrier/write#1"):
        event_id = post(house)
        house.await_held()
        prepared_at = house.house.sql("SELECT prepared_at FROM attempt WHERE event_id = %s", event_id)[0][0]
        await_passed(house, prepared_at + HANDOFF)

    house.house.await_state(event_id, "delivered")
    attempts = [tuple(attempt[1:]) for attempt in house.house.sql(ATTEMPTS, event_id)]
    assert attempts[-1] == ("delivered", None)
    assert attempts[:-1] == [("failed", "not_handed_off")] * (len(attempts) - 1)
    assert len(attempts) >= 2
    assert house.texts([event_id]) == {event_id: 1}


def test_no_worker_throws_away_what_a_beat_with_the_right_time_asks_for(house: Crowd) -> None:
    """Celery's `expires` is an instant of the sender's clock, judged by the receiver's."""
    event_id = post(house)
    house.house.await_state(event_id, "delivered")

    logs = log_of(house.house, "worker") + log_of(house.house, "worker_bulk")
    assert "Discarding revoked task" not in logs
