"""Processes that are paused at a commit and let go later, in either order: whoever worked meanwhile, one text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest
from sqlalchemy import Engine

from tests.awaiting import eventually
from tests.crash.melee import EVENTS, End, Melee
from tests.crash.paused import (
    Edge,
    Lives,
    assert_balanced,
    attempts,
    await_blocked,
    edge_of,
    heard,
    history,
    receive,
    taken,
)
from tests.crash.town import Town, request
from tests.making import beside

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

# Its deadline had passed when it came to the first byte, so it wrote nothing, and said so.
WROTE_NOTHING: Final = ("failed", "not_handed_off")

ANY_TIME: Final = "SELECT %s::text"
OTHER_DELIVERED: Final = "SELECT 1 FROM intent WHERE event_id = %s AND state = 'delivered'"
# With the lease the deadline, which counts from no later than the lease's end.
LEASE_PASSED: Final = "SELECT 1 FROM outbox WHERE event_id = %s AND leased_until + interval '1 second' < clock_timestamp()"
DEADLINE_PASSED: Final = "SELECT 1 FROM attempt WHERE event_id = %s AND prepared_at + interval '1 second' < clock_timestamp()"
HELD: Final = """
SELECT o.reason = 'earlier_attempt' AND o.due_at >= a.horizon_at AND o.leased_until IS NULL
FROM outbox o JOIN attempt a ON a.intent_id = o.intent_id AND a.ordinal = 1 WHERE o.event_id = %s
"""
RETRY_LEFT: Final = "SELECT 1 FROM attempt WHERE event_id = %s AND ordinal > 1 AND prepared_at IS NOT NULL"
# What a late word makes of a failed attempt and of the retry that waits.
AFTER: Final = {
    "delivered": [("delivered", "transient"), ("cancelled", None)],
    "sent": [("failed", "transient"), ("queued", None)],
}

ROUNDS: Final = 12
OPT_OUTS: Final = 6
ENDS: Final = {
    End("delivered", has_left=True),
    End("permanent_recipient", has_left=True),
    End("cancelled", has_left=False),
    End("opted_out", has_left=False),
}

CLAIM: Final = "flows.dispatch._claim"
PREPARE: Final = "flows.handoff._prepare"
OBSERVE: Final = "flows.keep.observe_until_kept"
LOOKED_UP: Final = "flows.receipts._keep/before_commit#1"
KEPT: Final = "flows.receipts._keep/committed#1"
OBSERVED: Final = "flows.receipts._observe_free/before_commit#1"

SILENT: Final = {"receipts": "lost", "path": [{"status": "sent", "after_ms": 10}]}
"""The carrier took it, and says so when it is asked; what else is heard, a test says."""
CODES: Final = {"undelivered": {"ErrorCode": "30005"}, "failed": {"ErrorCode": "30003"}}
"""A number that is not in service, for good; a handset that is switched off, for now."""


@pytest.fixture(scope="module")
def lives(town: Town) -> Iterator[Lives]:
    made = Lives(town)
    yield made
    made.points.release()
    assert_balanced(town.environment)
    made.end()


@pytest.fixture
def pair(lives: Lives) -> Lives:
    """Give two lives whose leases and deadlines pass while a test waits."""
    lives.be(2, DAYBOOK_LEASE_SECONDS="2", DAYBOOK_HANDOFF_SECONDS="1")
    return lives


@pytest.fixture
def alone(lives: Lives) -> Lives:
    """Give one life whose leases and deadlines outlast every wait."""
    lives.be(1, DAYBOOK_LEASE_SECONDS="60", DAYBOOK_HANDOFF_SECONDS="15")
    return lives


@pytest.fixture(scope="module")
def edges(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Edge, Edge]]:
    folder = tmp_path_factory.mktemp("edges")
    with edge_of(lives.town, folder / "first") as first, edge_of(lives.town, folder / "second") as second:
        yield first, second


def handed_off(town: Town) -> tuple[str, str]:
    """Hand one text off to a carrier that says nothing by itself; return its number and its event."""
    number = next(town.numbers)
    town.script({"match": {"to": number, "nth": 1}, "then": SILENT})
    event_id = town.insert(request(number))
    eventually(partial(attempts, town, event_id), until=lambda found: found == [("submitted", None)])
    return number, event_id


def receipt(edge: Edge, number: str, status: str) -> int:
    return edge.receive(number, status, **CODES.get(status, {})).status_code


@pytest.mark.parametrize(
    ("place", "meanwhile", "receipts", "too_late"),
    [
        pytest.param(f"{CLAIM}/before_commit", ANY_TIME, "normal", False, id="claiming"),
        pytest.param(f"{CLAIM}/committed", OTHER_DELIVERED, "normal", False, id="claimed"),
        pytest.param(f"{PREPARE}/before_commit", LEASE_PASSED, "normal", True, id="preparing"),
        pytest.param(f"{PREPARE}/committed", DEADLINE_PASSED, "normal", True, id="prepared"),
        pytest.param("carrier/answered", OTHER_DELIVERED, "lost", False, id="answered"),
        pytest.param(f"{OBSERVE}/before_commit", ANY_TIME, "normal", False, id="observing"),
    ],
)
def test_a_worker_let_go_after_another_has_worked_brings_no_second_text(
    pair: Lives, place: str, meanwhile: str, receipts: str, *, too_late: bool
) -> None:
    town, number, bystander = pair.town, next(pair.town.numbers), next(pair.town.numbers)
    town.script({"match": {"to": number}, "then": {"receipts": receipts}})
    pair.points.hold(f"{place}#1")
    event_id = town.insert(request(number))
    pair.points.await_held()
    worked = town.insert(request(bystander))
    eventually(partial(town.outcome, worked), until=lambda outcome: outcome == "delivered")
    eventually(partial(town.sql, meanwhile, event_id), seconds=40)

    pair.points.release()

    assert eventually(partial(town.outcome, event_id), seconds=40) == "delivered"
    *before, last = attempts(town, event_id)
    assert last == ("delivered", None)
    assert before == [WROTE_NOTHING] * max(len(before), too_late)
    assert len(taken(town, number)) == 1


@pytest.mark.parametrize("released", [(0, 1), (1, 0)], ids=["first-first", "second-first"])
@pytest.mark.parametrize("point", [LOOKED_UP, KEPT], ids=["looked-up", "kept"])
@pytest.mark.parametrize(
    ("held", "passing"),
    [(("delivered", "undelivered"), "sent"), (("sent", "delivered"), "undelivered"), (("undelivered", "sent"), "delivered")],
)
def test_receipts_paused_after_their_look_up_end_alike_in_either_order(
    alone: Lives, edges: tuple[Edge, Edge], held: tuple[str, str], passing: str, point: str, released: tuple[int, int]
) -> None:
    number, event_id = handed_off(alone.town)
    for edge in edges:
        edge.points.hold(point)

    with beside(*(partial(receipt, edge, number, status) for edge, status in zip(edges, held, strict=True))) as calls:
        for edge in edges:
            edge.points.await_held()
        passed = receive(alone.town, alone.town.port, number, passing, **CODES.get(passing, {}))
        edges[released[0]].points.release()
        first = calls[released[0]].result(20)
        edges[released[1]].points.release()

    assert [passed.status_code, first, calls[released[1]].result()] == [200, 200, 200]
    assert attempts(alone.town, event_id) == [("delivered", "permanent_recipient")]
    assert sorted(state for source, state, _ in heard(alone.town, event_id) if source == "receipt") == [
        "delivered",
        "failed",
        "submitted",
    ]
    assert history(alone.town, event_id)[-1] == "delivered"
    assert len(taken(alone.town, number)) == 1


def assert_never_handed_off(town: Town, number: str, event_id: str, late: str) -> None:
    """Check that a late word keeps the retry here, while the life that might have sent it works on."""
    worked = town.insert(request(next(town.numbers)))
    eventually(partial(town.outcome, worked), until=lambda outcome: outcome == "delivered")

    assert attempts(town, event_id) == AFTER[late]
    assert town.sql(HELD, event_id) == [(True,)] * (late == "sent")
    assert town.sql(RETRY_LEFT, event_id) == []
    assert len(taken(town, number)) == 1


@pytest.mark.parametrize("late", ["delivered", "sent"])
def test_a_late_word_that_waits_for_the_failure_to_be_written_finds_the_retry(
    alone: Lives, edges: tuple[Edge, Edge], late: str
) -> None:
    number, event_id = handed_off(alone.town)
    edges[0].points.hold(OBSERVED)

    with beside(partial(receipt, edges[0], number, "failed")) as (failed,):
        edges[0].points.await_held()
        with beside(partial(receipt, edges[1], number, late)) as (said,):
            await_blocked(alone.town)
            edges[0].points.release()

    assert (failed.result(), said.result()) == (200, 200)
    assert_never_handed_off(alone.town, number, event_id, late)


@pytest.mark.parametrize("late", ["delivered", "sent"])
def test_a_late_word_that_waits_for_the_claim_takes_the_retry_from_under_its_lease(
    alone: Lives, edges: tuple[Edge, Edge], late: str
) -> None:
    number, event_id = handed_off(alone.town)
    alone.points.hold(f"{CLAIM}/before_commit#1", f"{CLAIM}/committed#1")
    assert receipt(edges[0], number, "failed") == 200
    alone.points.await_held()

    with beside(partial(receipt, edges[0], number, late)) as (said,):
        await_blocked(alone.town)
        alone.points.go_on()  # it commits its lease, and stands with it until the late word is in the books
    assert said.result() == 200
    alone.points.release()

    assert_never_handed_off(alone.town, number, event_id, late)


@pytest.mark.parametrize("late", ["delivered", "sent"])
def test_a_prepare_that_waits_for_a_late_word_does_not_begin_the_retry(alone: Lives, edges: tuple[Edge, Edge], late: str) -> None:
    number, event_id = handed_off(alone.town)
    alone.points.hold(f"{CLAIM}/committed#1")
    assert receipt(edges[0], number, "failed") == 200
    alone.points.await_held()
    edges[1].points.hold(OBSERVED)

    with beside(partial(receipt, edges[1], number, late)) as (said,):
        edges[1].points.await_held()
        alone.points.release()
        await_blocked(alone.town)
        edges[1].points.release()

    assert said.result() == 200
    assert_never_handed_off(alone.town, number, event_id, late)


@pytest.mark.parametrize("seed", [1, 2])
def test_overlapping_pages_in_opposite_orders_lose_nothing_and_send_nothing_twice(fresh_database: Engine, seed: int) -> None:
    """The order of locks holds, so nobody even has to be told to begin again."""
    melee = Melee(fresh_database, seed)
    deadlocks = melee.deadlocks()

    for _ in range(ROUNDS):
        melee.round()
    melee.finish()

    texts, ends = melee.texts(), melee.ends()
    assert set(texts.values()) == {1}
    assert ends.keys() <= ENDS, ends
    assert (ends.total(), sum(ends[end] for end in ends if end.has_left)) == (ROUNDS * EVENTS, len(texts))
    assert melee.deadlocks() == deadlocks
    assert_balanced(os.environ)


def test_opt_outs_of_the_same_people_in_two_pages_are_heard_without_a_deadlock(fresh_database: Engine) -> None:
    """The second events were accepted the other way round: by attempt, the two pages come to the gates in opposite orders."""
    melee = Melee(fresh_database, seed=3)
    deadlocks = melee.deadlocks()

    for _ in range(OPT_OUTS):
        melee.opt_out()

    assert melee.ends() == {End("opted_out", has_left=True): OPT_OUTS * EVENTS}
    assert melee.deadlocks() == deadlocks
    assert_balanced(os.environ)
