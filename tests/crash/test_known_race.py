"""The known race: a receipt says `delivered` while its own worker waits for the carrier, gives up, and reports `unknown`.

Everything crosses real sockets: the worker's call hangs until its read time-out, the receipts are the
carrier's signed calls, the cancel is the API's. All the stories hang in one page, so they cost one
time-out together. How long after it the operator cancels is of no account: nothing in the books asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import pytest

from tests.awaiting import eventually
from tests.crash.paused import assert_balanced, attempts, call, heard, history, taken
from tests.crash.town import Town, request

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

# The carrier has the text, tells nobody by itself, and never answers.
HANGS: Final = {"respond": "hang", "receipts": "lost", "path": [{"status": "sent", "after_ms": 10}]}

GAVE_UP: Final = ("answer", "unknown")
Order = tuple[tuple[str, ...], tuple[str, ...]]
"""What happens while the worker waits, and what after it gave up."""
KNOWN: Final[Order] = (("delivered",), ("cancel", "sent"))
OTHERS: Final[tuple[Order, ...]] = (
    (("cancel", "delivered"), ("sent",)),
    (("sent", "delivered", "cancel"), ()),
    (("cancel",), ("delivered", "sent")),
    ((), ("cancel", "delivered", "sent")),
    ((), ("sent", "delivered", "cancel")),
)


@dataclass(frozen=True, slots=True)
class Story:
    """One event whose text hangs at the carrier."""

    town: Town
    number: str
    event_id: str

    def play(self, happening: str) -> None:
        """Let the operator cancel, or the carrier post a receipt."""
        if happening == "cancel":
            call(self.town, "POST", f"/v1/events/{self.event_id}/cancel")
            return
        receipt = {"to": self.number, "status": happening}
        posted = self.town.client.post(f"{self.town.carrier.url}/_sim/receipts", json=receipt)
        assert posted.json()["http_status"] == 200, posted.text

    def heard(self) -> list[tuple[Any, ...]]:
        """Give what was heard, without how it was judged."""
        return [(source, state) for source, state, _ in heard(self.town, self.event_id)]

    def cancels(self) -> int:
        """Count the operator's cancels in the desk's book."""
        statement = "SELECT 1 FROM operator_action WHERE verb = 'cancel' AND subject ->> 'event_id' = %s"
        return len(self.town.sql(statement, self.event_id))


@pytest.fixture(scope="module")
def stories(town: Town) -> Iterator[Mapping[Order, Story]]:
    """Play every order on one page of hanging texts."""
    town.environment["DAYBOOK_HANDOFF_SECONDS"] = "15"  # they hang from their first attempt on, on a slow machine too
    town.live()
    numbers = {order: next(town.numbers) for order in (KNOWN, *OTHERS)}
    town.script(*({"match": {"to": number}, "then": HANGS} for number in numbers.values()))
    due = town.sql("SELECT clock_timestamp()")[0][0] + timedelta(seconds=2)
    told = {o: Story(town, n, town.post(request(n, not_before=due.isoformat()))) for o, n in numbers.items()}
    for story in told.values():
        eventually(partial(taken, town, story.number))
    play(told, 0)
    assert [s.heard() for s in told.values() if GAVE_UP in s.heard()] == [], "a worker gave up before the race began"
    for story in told.values():
        eventually(story.heard, until=lambda heard: GAVE_UP in heard, seconds=30)
    play(told, 1)
    yield told
    assert_balanced(town.environment)


def name_of(order: Order) -> str:
    return "-".join((*order[0], "unknown", *order[1]))


def play(stories: Mapping[Order, Story], part: int) -> None:
    for order, story in stories.items():
        for happening in order[part]:
            story.play(happening)


def test_delivered_stands_and_what_came_after_it_is_kept_as_evidence(town: Town, stories: Mapping[Order, Story]) -> None:
    story = stories[KNOWN]

    assert attempts(town, story.event_id) == [("delivered", None)]
    assert heard(town, story.event_id) == [
        ("receipt", "delivered", "applied"),
        ("answer", "unknown", "stale"),
        ("receipt", "submitted", "stale"),
    ]
    assert story.cancels() == 1
    assert history(town, story.event_id) == ["queued", "deferred", "delivered"]


@pytest.mark.parametrize("order", [KNOWN, *OTHERS], ids=name_of)
def test_in_whatever_order_it_is_heard_it_ends_delivered_with_one_text(
    town: Town, stories: Mapping[Order, Story], order: Order
) -> None:
    story = stories[order]

    assert town.outcome(story.event_id) == "delivered"
    assert attempts(town, story.event_id) == [("delivered", None)]
    assert len(taken(town, story.number)) == 1
    assert history(town, story.event_id)[-1] == "delivered"


@pytest.mark.parametrize("order", [KNOWN, *OTHERS], ids=name_of)
def test_everything_that_was_said_is_kept(stories: Mapping[Order, Story], order: Order) -> None:
    story = stories[order]

    assert {GAVE_UP, ("receipt", "delivered")} <= set(story.heard())
    assert story.heard().count(("receipt", "submitted")) == [*order[0], *order[1]].count("sent")
    assert story.cancels() == 1
