"""The seat is filled while ten thousand wait, workers hand off and the API accepts more: each is before it, or after."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import Crowd, furnish
from tests.chaos.waiting_list import WaitingList

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

PEOPLE: Final = 10
TOTAL: Final = 10_000
TWICE: Final = 3
"""People who are posted once more under another key: these join, and wait for the first one's key."""
HANDED_OFF: Final = (
    "SELECT count(*) FROM attempt a JOIN event e ON e.id = a.event_id WHERE e.subject = %s AND a.prepared_at IS NOT NULL"
)
FOUND: Final = "SELECT c.event_id::text, c.found FROM cancelled c WHERE c.cancellation_id = %s"
LEFT_AFTER: Final = """
SELECT a.event_id::text FROM attempt a JOIN event e ON e.id = a.event_id WHERE e.subject = %s AND a.prepared_at > %s
"""


@pytest.fixture
def list_(house: Crowd) -> Iterator[WaitingList]:
    crowd = furnish(house.house, tenant="seats", policy=hasty_policy())
    yield WaitingList(crowd, "c-9081")
    crowd.valkey.close()


def brake(waiting: WaitingList, command: str) -> None:
    told = waiting.crowd.house.daybook(command, "--tenant", "seats", "--lane", "urgent", "--reason", "the list is filled")
    assert told.returncode == 0, told.stderr


def cancel(waiting: WaitingList) -> dict[str, Any]:
    body = {"type": "class.opening", "subject": waiting.subject, "reason": "seat filled"}
    response = waiting.crowd.house.call("POST", "/v1/cancellations", json=body, timeout=120)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer


def named(waiting: WaitingList, cancellation: dict[str, Any]) -> list[str]:
    """Read all pages of what the cancellation says had left."""
    found, cursor = [h["event_id"] for h in cancellation["handed_off"]], cancellation["next_cursor"]
    while cursor is not None:
        page = waiting.crowd.house.call("GET", f"/v1/cancellations/{cancellation['id']}", params={"after": cursor}).json()
        found += [h["event_id"] for h in page["handed_off"]]
        cursor = page["next_cursor"]
    return found


def test_the_seat_is_filled_for_ten_thousand_who_wait(list_: WaitingList) -> None:
    crowd, sql = list_.crowd, list_.crowd.house.sql
    crowd.slow(low_ms=50, high_ms=150)
    brake(list_, "pause")
    originals = [list_.request() for _ in range(PEOPLE)]
    events = [crowd.house.post(body)["event_id"] for body in originals]
    list_.fill(events, copies_of_each=TOTAL // PEOPLE - 1)
    joined = [crowd.house.post(body | {"key": f"again-{n}"})["event_id"] for n, body in enumerate(originals[:TWICE])]

    with list_.posting():
        brake(list_, "resume")
        eventually(lambda: sql(HANDED_OFF, list_.subject)[0][0] >= 50, seconds=60)
        asked_at = time.monotonic()
        cancellation = cancel(list_)
        answered_at = time.monotonic()
        committed_by = sql("SELECT clock_timestamp()")[0][0]
        eventually(lambda: sum(p.asked_at > answered_at for p in list_.posted) >= 50, seconds=60)

    found = dict(sql(FOUND, cancellation["id"]))
    handed_off = named(list_, cancellation)
    after = [p.event_id for p in list_.posted if p.event_id not in found]
    assert {p.event_id for p in list_.posted if p.answered_at < asked_at} <= found.keys()
    assert {p.event_id for p in list_.posted if p.asked_at > answered_at} <= set(after)
    # The counts add up, and are those of the rows.
    assert sum(cancellation["counts"].values()) == TOTAL + TWICE + len(list_.posted) - len(after)
    assert Counter(found.values()) == {word: n for word, n in cancellation["counts"].items() if n}
    assert sorted(handed_off) == sorted(e for e, word in found.items() if word == "handed_off")
    assert {found[e] for e in joined} == {"joined"}
    # Nobody accepted after it is missed, nobody accepted before is contacted but those it names.
    assert set(crowd.ends(after)) == {"delivered"}
    arrived = list_.arrived()
    assert arrived <= {*handed_off, *after}
    assert set(after) <= arrived
    assert {e for (e,) in sql(LEFT_AFTER, list_.subject, committed_by)} <= set(after)
    assert sql("SELECT count(*) FROM outbox o JOIN event e ON e.id = o.event_id WHERE e.subject = %s", list_.subject) == [(0,)]
