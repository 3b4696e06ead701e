"""Messages delivered twice, late, or in a shape of another version: ids are looked up in the books, which know better."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest
from celery import Celery

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

PAGES: Final = """
SELECT lease, route_id::text, array_agg(id::text) FROM attempt WHERE event_id = ANY(%s::uuid[]) GROUP BY lease, route_id
"""
STILL_LEASED: Final = "SELECT 1 FROM outbox WHERE event_id = ANY(%s::uuid[]) AND leased_until > clock_timestamp() LIMIT 1"


@pytest.fixture
def broker(house: Crowd) -> Iterator[Celery]:
    with Celery("stranger", broker=house.house.ready["redis_url"], set_as_current=False) as stranger:
        yield stranger


def send(broker: Celery, task: str, **kwargs: Any) -> None:
    broker.send_task(task, kwargs=kwargs, queue="urgent", ignore_result=True)


def await_drained(house: Crowd) -> None:
    """Wait until the workers took and acknowledged everything in their lane."""
    eventually(lambda: house.valkey.llen("urgent") == 0 and not in_hand(house), seconds=20)


def in_hand(house: Crowd) -> list[dict[str, Any]]:
    """Give the handoff messages that workers hold unacknowledged."""
    held = [json.loads(raw)[0] for raw in house.valkey.hvals("unacked")]
    return [message["headers"] for message in held if message["headers"]["task"] == "handoff"]


def test_messages_of_pages_that_were_handed_off_long_ago(house: Crowd, broker: Celery) -> None:
    workers = {name: house.pid(name) for name in ("worker", "worker_bulk")}
    house.slow(low_ms=20, high_ms=100)
    events = house.post_together(32)
    assert house.ends(events) == {"delivered": 32}
    pages = house.asked(PAGES, events)
    assert pages

    for lease, route_id, attempt_ids in pages:
        page = {"attempt_ids": attempt_ids, "route_id": route_id, "lease": lease}
        for _ in range(3):
            send(broker, "handoff", **page)
        send(broker, "handoff", **page, trace_parent="of a newer version")
        send(broker, "handoff", attempt_ids=attempt_ids, lease=lease)  # of an older one, that knew no routes
        send(broker, "handoff", **page | {"lease": lease + 1_000_000})  # of a lease that nobody ever had
        send(broker, "hand_off_all", **page)  # a task that no version knows
    events += house.post(20)
    await_drained(house)

    house.assert_one_text_each(events)
    assert {name: house.pid(name) for name in workers} == workers


def test_a_message_of_a_lease_that_ran_out_while_the_page_waits_again(house: Crowd, broker: Celery) -> None:
    """The message was late: its page is due once more under another lease, and goes out under that one only."""
    with house.held("flows.dispatch._claim/committed#1"):
        events = house.post_together(20)
        house.await_held()
        old = house.asked("SELECT attempt_id::text, route_id::text, lease FROM outbox WHERE event_id = ANY(%s::uuid[])", events)
        leased = [row for row in old if row[2] is not None]
        assert leased
        eventually(lambda: not house.asked(STILL_LEASED, events), seconds=20)
    for attempt_id, route_id, lease in leased:
        send(broker, "handoff", attempt_ids=[attempt_id], route_id=route_id, lease=lease)

    house.assert_one_text_each(events)
