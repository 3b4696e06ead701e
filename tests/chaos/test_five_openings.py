"""Five openings for one member within a minute, four processes at work on them: one text, and four that say why they wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

import pytest

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd
from tests.e2e.house import new_number

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

# Two more processes at the lane's side: with the house's own there are four.
NEIGHBOUR: Final = ("celery", "-A", "tasks.celery", "worker", "-Q", "urgent", "-c", "2", "-n", "five@%h", "--without-mingle")
COOLDOWN: Final = timedelta(minutes=10)
# Of the five, some live long enough to wait for their turn, and some would come too late then.
LIVES: Final = (None, timedelta(minutes=5), None, timedelta(minutes=5), None)
WAITS: Final = {("deferred", "cooldown"), ("expired", "would_expire")}

LEASED: Final = "SELECT 1 FROM outbox WHERE event_id = %s AND lease IS NOT NULL"
STANDING: Final = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%%gate%%'
"""

Ends = Mapping[str, tuple[str, str | None]]


@pytest.fixture(scope="module")
def four(patient: Crowd) -> Iterator[Crowd]:
    with patient.beside(*NEIGHBOUR) as log:
        eventually(lambda: log.exists() and "ready." in log.read_text(), seconds=40)
        yield patient


@contextmanager
def contending(four: Crowd, number: str) -> Iterator[list[str]]:
    """Open five seats for a member: one is let to the gate and held there, and others wait behind it until the block ends."""
    events: list[str] = []
    with four.held("flows.handoff._prepare/before_commit#1"):
        events.append(open_seat(four, number, LIVES[0]))
        four.await_held()
        for lives in LIVES[1:4]:  # each leased alone, so that each is another process's
            events.append(open_seat(four, number, lives))
            eventually(partial(four.house.sql, LEASED, events[-1]), seconds=20)
        # The first is let in and not through yet; the other three processes stand behind it.
        eventually(lambda: four.house.sql(STANDING)[0][0], until=lambda standing: standing >= 3, seconds=20)
        events.append(open_seat(four, number, LIVES[4]))
        yield events


def open_seat(four: Crowd, number: str, lives: timedelta | None) -> str:
    """Post an opening of a class of its own."""
    body = four.house.request() | {"recipient": {"ref": f"m-{number[1:]}", "sms": number}}
    if lives is not None:
        body["expires_at"] = (clock(four) + lives).isoformat()
    event_id: str = four.house.post(body)["event_id"]
    return event_id


def clock(four: Crowd) -> datetime:
    """Ask Postgres what time it is."""
    now: datetime = four.house.sql("SELECT clock_timestamp()")[0][0]
    return now


def ends_of(four: Crowd, events: Sequence[str], *, seconds: float = 60) -> Ends:
    """Wait until the public history of each says how it ended, or why it waits."""

    def last() -> dict[str, tuple[str, str | None]]:
        items = {event_id: four.house.last(event_id) for event_id in events}
        return {event_id: (item["state"], item["reason"]) for event_id, item in items.items()}

    return eventually(last, until=lambda ends: not any(is_under_way(*end) for end in ends.values()), seconds=seconds)


def is_under_way(state: str, reason: str | None) -> bool:
    return state in {"queued", "handed_off"} or reason == "retry"


def texts(four: Crowd, number: str) -> list[dict[str, Any]]:
    return four.house.accepted(number)


def assert_one_of_five(four: Crowd, ends: Ends, number: str, state: str) -> None:
    """Check that one went and ended so, and that each of the others waits or came too late, and says why."""
    went = [event_id for event_id, told in ends.items() if told[0] == state]
    assert len(went) == 1, ends
    assert {told for event_id, told in ends.items() if event_id not in went} <= WAITS, ends
    assert len(texts(four, number)) == 1
    four.await_beats()
    assert ends_of(four, list(ends)) == ends
    assert len(texts(four, number)) == 1


def test_five_openings_at_once_are_one_text(four: Crowd) -> None:
    number = new_number()
    with contending(four, number) as events:
        pass

    ends = ends_of(four, events)

    assert_one_of_five(four, ends, number, "delivered")
    waits = [four.house.last(event_id)["next_at"] for event_id, (state, _) in ends.items() if state == "deferred"]
    assert min(map(datetime.fromisoformat, waits)) > clock(four) + COOLDOWN / 2


def test_five_openings_are_one_text_when_valkey_is_emptied_between_lease_and_prepare(four: Crowd) -> None:
    number = new_number()
    with contending(four, number) as events:
        four.valkey.flushall()

    assert_one_of_five(four, ends_of(four, events), number, "delivered")


def test_five_openings_are_one_text_when_nobody_knows_what_became_of_the_first(four: Crowd) -> None:
    """The carrier took it, and says nothing: whoever is in doubt keeps the person to itself."""
    number = new_number()
    then = {"respond": "drop", "receipts": "lost", "listed": False, "polled": False}
    four.house.rules({"match": {"to": number, "nth": 1}, "then": then})
    with contending(four, number) as events:
        pass

    assert_one_of_five(four, ends_of(four, events), number, "unknown")


def test_with_the_first_refused_the_second_goes(four: Crowd) -> None:
    """Nobody was contacted by a refusal: the next opening finds the person free."""
    number = new_number()
    four.house.rules({"match": {"to": number, "nth": 1}, "then": {"accept": False, "status": 400, "code": 30007}})
    with contending(four, number) as events:
        pass
    first = ends_of(four, events)
    events.append(open_seat(four, number, None))

    ends = ends_of(four, events)

    refused = [event_id for event_id, end in ends.items() if end == ("failed", "permanent_content")]
    assert len(refused) == 1
    assert first[refused[0]] == ends[refused[0]]
    assert_one_of_five(four, {i: end for i, end in ends.items() if i not in refused}, number, "delivered")
