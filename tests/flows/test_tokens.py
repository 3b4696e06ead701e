"""Tokens on their way to the wire: void after a second, none without Redis, a fast no without the gate, bulk behind urgent."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app import limits
from app.flows.dispatch import Page, dispatch
from app.flows.handoff import hand_off, send_side_by_side
from app.flows.routes import find_route
from app.flows.tokens import Tokens
from app.ground.config import settings
from app.ground.db import rows
from app.ground.ids import Lease
from app.limits import Bucket, _client_of
from policy.rates import Rate
from policy.words import Lane
from tests.awaiting import eventually
from tests.conftest import World
from tests.making import (
    BEN,
    Standing,
    attempts_of,
    beside,
    carriers_of,
    clock,
    committing,
    make_house,
    make_queued,
    make_template,
    outbox_of,
    prepared_of,
    sample,
    simulated,
    transitions_of,
    wait_until_blocked,
)

LOCK_THE_GATES: Final = "SELECT 1 FROM gate FOR UPDATE"


def made(engine: Engine, *, count: int = 1, rate: int = 50, **house: Any) -> list[Standing]:
    with committing(engine) as session:
        now = clock(session)
        town = make_house(session, rate=rate, now=now, **house)
        numbers = [f"+120155501{n:02}" for n in range(count)]
        return [make_queued(session, town, now=now, subject=f"c-{n}", ref=f"m-{n}", sms=sms) for n, sms in enumerate(numbers)]


def two_reasons(engine: Engine) -> tuple[Standing, Standing]:
    """Let two events be due for one person, who is left alone for ten minutes after a text."""
    with committing(engine) as session:
        now = clock(session)
        house = make_house(session, now=now)
        first, second = (make_queued(session, house, now=now, subject=f"c-{n}", sms=BEN) for n in range(2))
        return first, second


def apart(pages: list[Page]) -> list[Page]:
    """Give a page's attempts one by one, as if two workers had them: the first is the older."""
    (page,) = pages
    return [replace(page, attempt_ids=(i,)) for i in sorted(page.attempt_ids)]


def send(page: Page, transport: httpx.BaseTransport) -> None:
    hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, terms=page.terms, carrier_of=carriers_of(transport))


def bucket_of(standing: Standing, *, per_second: int) -> Bucket:
    return Bucket.of_route(standing.house.route_id, Rate(per_second, 50))


def tokens_of(standing: Standing, *, taken_at: float) -> Tokens:
    route = find_route(standing.house.route_id)
    assert route is not None
    return Tokens(route, Lease(1), limits.Terms(), taken_at=taken_at)


# Void after a second.


def test_a_token_that_grew_old_while_prepare_waited_is_not_written_with(fresh_database: Engine) -> None:
    """Whatever holds prepare up, the carrier sees no more than what the bucket gave in the last second."""
    (standing,) = made(fresh_database, rate=1)
    (page,) = dispatch(Lane.URGENT)
    transport, bucket = simulated(), bucket_of(standing, per_second=1)
    level, began = limits.peek(bucket), limits.clock()

    with Session(fresh_database) as session:
        rows(session, "SELECT 1 FROM intent FOR UPDATE")
        with beside(lambda: send(page, transport)):
            wait_until_blocked(fresh_database)
            eventually(lambda: limits.clock() > began + limits.VOID_AFTER_SECONDS + 0.1)
            session.rollback()

    gained = limits.clock() - began
    assert len(transport.book.messages) == 1
    assert level + gained - limits.peek(bucket) == pytest.approx(2, abs=0.3), "the old token, and the one that was written with"


def test_without_another_token_in_time_nothing_is_written_and_it_goes_again(fresh_database: Engine, world: World) -> None:
    with committing(fresh_database) as session:
        standing = prepared_of(session, make_queued(session, make_house(session, rate=1), now=clock(session)), now=clock(session))
    assert standing.handoff is not None
    bucket = bucket_of(standing, per_second=1)
    limits.peek(bucket)
    world.valkey.hset(bucket.key, "tokens", -100)
    old = tokens_of(standing, taken_at=limits.clock() - limits.VOID_AFTER_SECONDS)
    handoff, transport = replace(standing.handoff, deadline=limits.clock() + 0.3), simulated()

    ((told,),) = send_side_by_side([handoff], carriers_of(transport), valid_until=old.valid_until)

    assert (told.error_class, told.error_code) == ("not_handed_off", "deadline_passed")
    assert transport.book.requests == []


def test_a_fresh_token_is_good_for_its_second_and_no_longer_than_the_handoff(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        standing = prepared_of(session, make_queued(session, make_house(session), now=clock(session)), now=clock(session))
    assert standing.handoff is not None
    now = limits.clock()

    fresh = tokens_of(standing, taken_at=now)

    assert fresh.valid_until(replace(standing.handoff, deadline=now + 60)) == now + limits.VOID_AFTER_SECONDS
    assert fresh.valid_until(replace(standing.handoff, deadline=now + 0.5)) == now + 0.5


# What gets none.


def test_what_gets_no_token_comes_again_one_behind_the_other(fresh_database: Engine, world: World) -> None:
    """Not all at once, to be leased and put off for each other's sake."""
    standings = made(fresh_database, count=4, rate=10)
    (page,) = dispatch(Lane.URGENT)
    world.valkey.hset(bucket_of(standings[0], per_second=10).key, "tokens", 0)

    send(page, simulated())

    with Session(fresh_database) as session:
        due = sorted(outbox_of(session, standing).due_at for standing in standings)
    steps = [(later - earlier) / timedelta(seconds=1) for earlier, later in pairwise(due)]
    assert steps == pytest.approx([0.1] * 3, abs=0.02)


def test_nothing_is_leased_that_would_find_no_token(fresh_database: Engine, world: World) -> None:
    standings = made(fresh_database, count=8, rate=10)
    bucket = bucket_of(standings[0], per_second=10)
    limits.peek(bucket)
    world.valkey.hset(bucket.key, "tokens", -5)

    assert dispatch(Lane.URGENT) == []
    world.valkey.hset(bucket.key, "tokens", 3)
    (page,) = dispatch(Lane.URGENT)

    assert 3 <= len(page.attempt_ids) < 8


def test_without_redis_everything_is_put_off_with_that_reason_and_nothing_is_sent(
    fresh_database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    (standing,) = made(fresh_database)
    transport = simulated()
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:9/0")  # nobody listens there
    forget()

    for page in dispatch(Lane.URGENT):
        send(page, transport)
    monkeypatch.undo()
    forget()

    with Session(fresh_database) as session:
        row = outbox_of(session, standing)
        assert (row.reason, row.lease, row.lost_lease_count) == ("limits_unreachable", None, 0)
        assert row.due_at > clock(session) + timedelta(seconds=1)
    assert transport.book.requests == []


def forget() -> None:
    settings.cache_clear()
    _client_of.cache_clear()


def test_bulk_that_drained_a_route_leaves_a_token_for_what_is_urgent(fresh_database: Engine, world: World) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        raw = sample()
        del raw["categories"]["marketing"]["hours"]
        house = make_house(session, policy=raw, rate=1, now=now)
        make_template(session, house.tenant_id, name="offer", category="marketing", now=now)
        offers = [
            make_queued(session, house, now=now, subject=f"o-{n}", ref=f"b-{n}", sms=f"+120255501{n:02}", template="offer")
            for n in range(8)
        ]
        urgent = make_queued(session, house, now=now)
    bucket = bucket_of(urgent, per_second=1)
    limits.peek(bucket)
    world.valkey.hset(bucket.key, "tokens", 13)  # of 50, ten of which are not for bulk
    transport = simulated()

    for _ in range(3):
        for lane in (Lane.BULK, Lane.URGENT):
            for page in dispatch(lane):
                send(page, transport)

    with Session(fresh_database) as session:
        states = Counter(attempts_of(session, offer.intent_id)[0].state for offer in offers)
        assert attempts_of(session, urgent.intent_id)[0].state == "submitted"
    assert states["submitted"] in {3, 4}, "the fourth found the token that dropped in meanwhile"


def test_a_tenants_own_rate_and_a_routes_segments_are_counted(fresh_database: Engine, world: World) -> None:
    rate = Rate(1, 3)
    policy = sample() | {"rate": {"per_second": rate.per_second, "burst": rate.burst}}
    standings = made(fresh_database, count=3, policy=policy, settings={"counted_in": "segments"})
    with committing(fresh_database) as session:
        rows(session, "UPDATE attempt SET segment_count = 2")
    bucket = Bucket.of_tenant(standings[0].house.tenant_id, rate)
    limits.peek(bucket)
    world.valkey.hset(bucket.key, "tokens", rate.burst)
    transport = simulated()

    for page in dispatch(Lane.URGENT):
        send(page, transport)

    with Session(fresh_database) as session:
        reasons = [row.reason for row in rows(session, "SELECT reason FROM outbox")]
    assert (len(transport.book.messages), reasons) == (1, ["rate_limited"] * 2)


# The fast no.


def test_who_was_just_contacted_is_not_prepared_and_the_gate_is_not_asked(fresh_database: Engine) -> None:
    first, second = two_reasons(fresh_database)
    transport = simulated()
    one, other = apart(dispatch(Lane.URGENT))
    send(one, transport)

    with Session(fresh_database) as session:
        rows(session, LOCK_THE_GATES)  # whoever asked the gate would wait here for ten seconds, and fail
        send(other, transport)

    with Session(fresh_database) as session:
        row = outbox_of(session, second)
        assert (len(transport.book.messages), row.reason, row.lease) == (1, "cooldown", None)
        assert row.due_at <= clock(session) + timedelta(seconds=1)
        assert attempts_of(session, first.intent_id)[0].state == "submitted"


def test_what_redis_said_no_to_is_decided_again_by_the_books(fresh_database: Engine) -> None:
    _, second = two_reasons(fresh_database)
    transport = simulated()
    for page in apart(dispatch(Lane.URGENT)):
        send(page, transport)

    def decided_again() -> bool:
        assert dispatch(Lane.URGENT) == []
        with Session(fresh_database) as session:
            return bool(outbox_of(session, second).due_at > clock(session) + timedelta(minutes=9))

    eventually(decided_again, seconds=10)
    with Session(fresh_database) as session:
        assert transitions_of(session, second)[-1] == ("queued", "deferred", "cooldown")


def test_with_redis_emptied_in_between_the_gate_says_no(fresh_database: Engine, world: World) -> None:
    _, second = two_reasons(fresh_database)
    transport = simulated()
    one, other = apart(dispatch(Lane.URGENT))
    send(one, transport)
    world.valkey.flushdb()

    send(other, transport)

    with Session(fresh_database) as session:
        assert (len(transport.book.messages), attempts_of(session, second.intent_id)[0].state) == (1, "queued")


def test_a_slot_that_was_freed_is_said_no_to_no_longer(fresh_database: Engine) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    first, second = two_reasons(fresh_database)
    transport = simulated()
    one, other = apart(dispatch(Lane.URGENT))
    send(one, httpx.MockTransport(refuse))

    send(other, transport)

    with Session(fresh_database) as session:
        assert attempts_of(session, first.intent_id)[0].error_class == "not_handed_off"
        assert attempts_of(session, second.intent_id)[0].state == "submitted"
    assert len(transport.book.messages) == 1
