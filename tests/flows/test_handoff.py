"""Handoff: at most once to the carrier, every answer kept, and what may not go is put back with its reason."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app import limits
from app.flows.dispatch import Page, dispatch
from app.flows.handoff import _report_not_handed_off, hand_off
from app.ground.db import rows
from app.ledger.prepare import prepare
from policy.rates import Rate
from policy.states import AttemptState
from policy.words import Lane
from tests.making import (
    BEN,
    Standing,
    answering,
    attempt_of,
    attempts_of,
    carriers_of,
    clock,
    committing,
    count_of,
    hear,
    make_house,
    make_queued,
    outbox_of,
    simulated,
    slots_of,
    together,
    transitions_of,
)


def made(engine: Engine, *, count: int = 1, rate: int = 50) -> list[Standing]:
    with committing(engine) as session:
        now = clock(session)
        house = make_house(session, rate=rate, now=now)
        numbers = [f"+120155501{n:02}" for n in range(count)]
        return [make_queued(session, house, now=now, subject=f"c-{n}", ref=f"m-{n}", sms=sms) for n, sms in enumerate(numbers)]


def send(page: Page, transport: httpx.BaseTransport) -> None:
    hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=carriers_of(transport))


def run(transport: httpx.BaseTransport) -> None:
    for page in dispatch(Lane.URGENT):
        send(page, transport)


def clock_of(engine: Engine) -> datetime:
    with Session(engine) as session:
        return clock(session)


def test_a_due_attempt_reaches_the_carrier_once_and_its_answer_is_kept(fresh_database: Engine) -> None:
    (standing,) = made(fresh_database)
    transport = simulated()

    run(transport)
    run(transport)

    (message,) = transport.book.messages.values()
    with Session(fresh_database) as session:
        assert transitions_of(session, standing) == [(None, "queued", None), ("queued", "handed_off", None)]
        assert count_of(session, "remote_id", remote_id=message.sid) == 1
        assert message.submission.body == "A seat opened in Spin 18:00."


def test_a_task_delivered_twice_sends_once(fresh_database: Engine) -> None:
    """The broker may repeat: the lease, and then the state, let one of the two through."""
    made(fresh_database, count=3)
    transport = simulated()
    (page,) = dispatch(Lane.URGENT)

    together(*[lambda: send(page, transport)] * 3)

    assert len(transport.book.messages) == 3


@pytest.mark.parametrize(
    ("then", "state", "error_class"),
    [
        ({"code": 21211, "accept": False}, "failed", "permanent_recipient"),
        ({"code": 21610, "accept": False}, "failed", "opted_out"),
        ({"status": 401, "accept": False}, "failed", "auth_config"),
        ({"status": 429, "accept": False}, "failed", "throttled"),
        ({"status": 500}, "unknown", None),
        ({"respond": "hang"}, "unknown", None),
        ({"respond": "drop"}, "unknown", None),
        ({"respond": "garbage"}, "unknown", None),
        ({"respond": "empty"}, "unknown", None),
    ],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_each_answer_becomes_what_the_table_says(
    fresh_database: Engine, then: dict[str, Any], state: str, error_class: str | None
) -> None:
    (standing,) = made(fresh_database)

    run(simulated({"then": then}))

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.error_class) == (state, error_class)


@pytest.mark.parametrize("then", [{"respond": "hang"}, {"status": 500, "accept": True}, {"respond": "garbage"}])
def test_what_may_have_been_taken_is_never_sent_again_by_itself(fresh_database: Engine, then: dict[str, Any]) -> None:
    (standing,) = made(fresh_database)
    transport = simulated({"then": then})

    for _ in range(3):
        run(transport)

    with Session(fresh_database) as session:
        assert (len(transport.book.messages), len(attempts_of(session, standing.intent_id))) == (1, 1)
        assert slots_of(session, standing) != {}


def test_what_never_left_is_due_again_and_frees_its_slot(fresh_database: Engine) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    (standing,) = made(fresh_database)

    run(httpx.MockTransport(refuse))

    with Session(fresh_database) as session:
        first, second = attempts_of(session, standing.intent_id)
        assert (first.error_class, second.state, slots_of(session, standing)) == ("not_handed_off", "queued", {})


def test_a_fault_of_ours_in_one_send_leaves_that_one_in_doubt_and_the_others_alone(fresh_database: Engine) -> None:
    first, second = made(fresh_database, count=2)

    def explode(request: httpx.Request) -> httpx.Response:
        if b"5550100" in request.content:
            raise ZeroDivisionError
        return httpx.Response(201, json={"sid": "SM1", "status": "queued"})

    run(httpx.MockTransport(explode))

    with Session(fresh_database) as session:
        assert sorted(attempt_of(session, s).state for s in (first, second)) == ["submitted", "unknown"]


def test_a_route_that_cannot_be_opened_is_a_configuration_fault(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, settings={"account_sid": ""}, now=now)
        standing = make_queued(session, house, now=now)

    run(answering(500))

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).error_class == "auth_config"
        assert count_of(session, "pause", route_id=house.route_id) == 1


def test_a_receipt_that_comes_before_the_answer_is_not_overwritten_by_it(fresh_database: Engine) -> None:
    (standing,) = made(fresh_database)

    def deliver_first(_: httpx.Request) -> httpx.Response:
        with committing(fresh_database) as session:
            hear(session, standing, AttemptState.DELIVERED, remote_id="SM1", now=clock(session))
        return httpx.Response(201, json={"sid": "SM1", "status": "queued"})

    run(httpx.MockTransport(deliver_first))

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "delivered"
        assert [t[1] for t in transitions_of(session, standing)] == ["queued", "delivered"]


def test_an_attempt_is_prepared_before_the_first_byte_leaves(fresh_database: Engine) -> None:
    (standing,) = made(fresh_database)
    seen: list[tuple[str, int]] = []

    def look(_: httpx.Request) -> httpx.Response:
        with Session(fresh_database) as session:
            seen.append((attempt_of(session, standing).state, count_of(session, "outbox")))
        return httpx.Response(201, json={"sid": "SM1", "status": "queued"})

    run(httpx.MockTransport(look))

    assert seen == [("prepared", 0)]


def test_no_transaction_is_open_while_the_network_is(fresh_database: Engine) -> None:
    made(fresh_database)
    open_ones: list[int] = []
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'daybook' AND state LIKE 'idle in transaction%%'"

    def look(_: httpx.Request) -> httpx.Response:
        with Session(fresh_database) as session:
            open_ones.append(rows(session, query)[0].n)
        return httpx.Response(201, json={"sid": "SM1", "status": "queued"})

    run(httpx.MockTransport(look))

    assert open_ones == [0]


def test_what_gets_no_token_is_put_off_with_its_reason_and_no_lost_lease(fresh_database: Engine) -> None:
    made(fresh_database, count=3, rate=1)
    (page,) = dispatch(Lane.URGENT)
    limits.take(
        [limits.Bucket.of_route(page.route_id, Rate(1, 50))], [limits.Ask()] * 23
    )  # of the half that a bucket starts with
    transport = simulated()

    send(page, transport)

    with Session(fresh_database) as session:
        (late,) = rows(session, "SELECT reason, lease, lost_lease_count, due_at FROM outbox")
        assert (len(transport.book.messages), late.reason, late.lease, late.lost_lease_count) == (2, "rate_limited", None, 0)
        assert late.due_at > clock(session)


def test_tokens_that_prepare_did_not_use_are_given_back(fresh_database: Engine) -> None:
    made(fresh_database, count=12, rate=1)
    (page,) = dispatch(Lane.URGENT)
    bucket = limits.Bucket.of_route(page.route_id, Rate(1, 50))
    before = limits.peek(bucket)
    with committing(fresh_database) as session:
        rows(session, "UPDATE outbox SET leased_until = leased_until - interval '1 hour'")

    send(page, simulated())

    assert limits.peek(bucket) >= before > len(page.attempt_ids)


def test_after_a_commit_whose_answer_was_lost_nothing_is_sent_and_what_stands_is_reported(
    fresh_database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server commits, and the connection breaks before we hear of it."""
    (standing,) = made(fresh_database)
    (page,) = dispatch(Lane.URGENT)
    transport = simulated()
    broken = lose_one_answer(monkeypatch, to="UPDATE attempt a")

    send(page, transport)

    assert (broken, len(transport.book.messages)) == (["lost"], 0)
    with Session(fresh_database) as session:
        first, second = attempts_of(session, standing.intent_id)
        assert (first.state, first.error_class, first.error_code) == ("failed", "not_handed_off", "commit_unknown")
        assert (second.state, slots_of(session, standing)) == ("queued", {})


def test_a_lost_commit_says_nothing_of_what_another_worker_prepared_under_the_same_lease(fresh_database: Engine) -> None:
    """A message delivered twice gives one lease to two workers; the other one may be sending right now."""
    (standing,) = made(fresh_database)
    (page,) = dispatch(Lane.URGENT)
    with committing(fresh_database) as session:
        theirs = clock(session)
        prepare(session, page.attempt_ids, lease=page.lease, handoff_for=timedelta(seconds=15), boottime=0.0, now=theirs)

    _report_not_handed_off(page.attempt_ids, lease=page.lease, began_at=theirs + timedelta(microseconds=1))

    with Session(fresh_database) as session:
        assert [a.state for a in attempts_of(session, standing.intent_id)] == ["prepared"]


def lose_one_answer(monkeypatch: pytest.MonkeyPatch, *, to: str) -> list[str]:
    """Break the connection of the next transaction that ran such a statement, right after the server has committed it."""
    lost: list[str] = []
    marked: set[Any] = set()
    execute: Callable[..., Any] = psycopg.Cursor.execute
    commit: Callable[..., Any] = psycopg.Connection.commit

    def mark(self: psycopg.Cursor[Any], query: Any, *args: Any, **more: Any) -> Any:
        if to in (query.decode() if isinstance(query, bytes) else query):
            marked.add(self.connection)
        return execute(self, query, *args, **more)

    def commit_and_break(self: psycopg.Connection[Any]) -> None:
        commit(self)  # the server has it
        if self in marked and not lost:
            lost.append("lost")
            self.close()
            commit(self)  # and we do not hear of it

    monkeypatch.setattr(psycopg.Cursor, "execute", mark)
    monkeypatch.setattr(psycopg.Connection, "commit", commit_and_break)
    return lost


def test_an_answer_whose_keeping_was_in_doubt_is_offered_again_and_kept_once(
    fresh_database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (standing,) = made(fresh_database)
    (page,) = dispatch(Lane.URGENT)
    broken: list[str] = []

    def answer(_: httpx.Request) -> httpx.Response:
        broken.append("armed")
        lose_one_answer(monkeypatch, to="UPDATE attempt a")
        return httpx.Response(201, json={"sid": "SM1", "status": "queued"})

    send(page, httpx.MockTransport(answer))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, count_of(session, "observation")) == ("submitted", 1)
        assert len(transitions_of(session, standing)) == 2
    assert broken == ["armed"]


def test_one_person_is_contacted_once_although_two_events_are_due(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        standings = [make_queued(session, house, now=now, subject=f"c-{n}", sms=BEN) for n in range(2)]
    transport = simulated()

    run(transport)
    run(transport)

    with Session(fresh_database) as session:
        states = sorted(attempt_of(session, s).state for s in standings)
        waiting = next(s for s in standings if attempt_of(session, s).state == "queued")
        assert (len(transport.book.messages), states) == (1, ["queued", "submitted"])
        assert outbox_of(session, waiting).due_at > clock_of(fresh_database) + timedelta(minutes=9)
