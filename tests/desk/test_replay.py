"""Refused receipts, once the right secret is known: what verifies is kept and forgotten as refused, the rest stays."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.carriers.base import Call
from app.desk.configure import NewRoute, add_route
from app.desk.pause import NoSuchRoute
from app.desk.replay import OtherCarrier, Replay, Replayed, replay_refused
from app.flows.receipts import Taken, take_receipt
from app.flows.reconcile.receipts import observe_waiting
from app.ground.db import rows
from app.ledger.receipts import keep_refused
from app.ledger.routes import read_routes
from policy.states import AttemptState
from simulator.dialect import Account, Inbound, inbound_call
from tests.flows.test_receipts import call
from tests.making import (
    ANNA,
    NOON,
    SENDER,
    TWILIO,
    House,
    attempt_of,
    clock,
    committing,
    count_of,
    make_attempt,
    make_house,
    make_route,
    together,
)

ROTATED: Final = "the secret that the carrier signs with"
STRANGER: Final = "a stranger's"


def refuse(session: Session, house: House, *calls: Call) -> None:
    route = read_routes(session, [house.route_id])[house.route_id]
    for each in calls:
        keep_refused(session, route, each, cause="not_authentic", now=NOON)


def add_right_route(session: Session, house: House) -> None:
    route = NewRoute(
        name="right",
        carrier="twilio",
        sender=SENDER,
        settings=TWILIO,
        credentials={"auth_token": ROTATED},
        rate_per_second=1,
    )
    add_route(session, tenant_id=house.tenant_id, route=route, public_url="https://notify.example.test", now=NOON)


def name_of(session: Session, house: House) -> str:
    name: str = rows(session, "SELECT name FROM route WHERE id = %(id)s", id=house.route_id)[0].name
    return name


def replayed(session: Session, house: House, credentials_of: str | None = "right", *, now: datetime = NOON) -> Replayed:
    replay = Replay(name_of(session, house), credentials_of, "the secret was wrong", "ann")
    return replay_refused(session, replay, tenant_id=house.tenant_id, now=now)


def test_what_verifies_now_is_kept_and_the_rest_stays_refused(session: Session) -> None:
    house = make_house(session)
    make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1")
    add_right_route(session, house)
    ours, nobody = call(house, secret=ROTATED), call(house, sid="SM-nobody", secret=ROTATED)
    refuse(session, house, ours, nobody, call(house, "failed", secret=STRANGER), call(house, "sent", secret=STRANGER))

    before, after, again = replayed(session, house, None), replayed(session, house), replayed(session, house)

    (action,) = rows(session, "SELECT actor, verb, reason, subject FROM operator_action")
    assert before == Replayed({}, 4, 0, None)
    assert after == Replayed({"waiting": 1, "unmatched": 1}, 2, 0, None)
    assert again == Replayed({}, 2, 0, None)
    assert (count_of(session, "refused_receipt"), count_of(session, "receipt"), count_of(session, "receipt_raw")) == (2, 2, 2)
    assert (action.actor, action.verb, action.reason, action.subject["count"]) == (
        "ann",
        "replay_receipts",
        "the secret was wrong",
        2,
    )


def test_a_stop_that_was_refused_is_heeded_once_it_verifies(session: Session) -> None:
    """The carrier does not repeat it: whoever wrote it must not be texted for a wrong secret of ours."""
    house = make_house(session)
    add_right_route(session, house)
    route = read_routes(session, [house.route_id])[house.route_id]
    told = inbound_call(Account(auth_token=ROTATED), route.settings.inbound_url, sid="SM1", told=Inbound(ANNA, SENDER, "STOP"))
    keep_refused(session, route, Call("POST", b"", told.headers, told.body), cause="inbound_not_authentic", now=NOON)

    after = replayed(session, house)

    assert after == Replayed({"waiting": 1}, 0, 0, None)
    assert (count_of(session, "refused_receipt"), count_of(session, "inbound", word="opt_out", status="waiting")) == (0, 1)


def test_a_call_that_does_not_open_stays(session: Session) -> None:
    house = make_house(session)
    add_right_route(session, house)
    refuse(session, house, call(house, secret=ROTATED), call(house, sid="SM2", secret=ROTATED))
    rows(session, "UPDATE refused_receipt SET sealed_call = 'x' WHERE id = (SELECT min(id::text)::uuid FROM refused_receipt)")

    assert replayed(session, house) == Replayed({"unmatched": 1}, 0, 1, None)
    assert count_of(session, "refused_receipt") == 1


def test_a_receipt_s_signature_verifies_no_text_and_other_routes_are_left_alone(session: Session) -> None:
    house, other = make_house(session), make_house(session)
    add_right_route(session, house)
    refuse(session, other, call(other, secret=ROTATED))
    route = read_routes(session, [house.route_id])[house.route_id]
    keep_refused(session, route, call(house, secret=ROTATED), cause="inbound_not_authentic", now=NOON)

    assert replayed(session, house) == Replayed({}, 1, 0, None)
    assert count_of(session, "refused_receipt") == 2


def test_the_credentials_must_be_of_a_route_of_the_tenant_to_the_same_carrier(session: Session) -> None:
    house, other = make_house(session), make_house(session)
    kannel = make_route(session, house.tenant_id, carrier="kannel")
    names = [rows(session, "SELECT name FROM route WHERE id = %(id)s", id=i)[0].name for i in (kannel, other.route_id)]

    with pytest.raises(OtherCarrier):
        replayed(session, house, names[0])
    with pytest.raises(NoSuchRoute):
        replayed(session, house, names[1])


def test_two_replays_keep_each_call_once_and_the_sweep_observes_it(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        standing = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1", now=now)
        add_right_route(session, house)
    refused = [take_receipt(house.route_id, call(house, secret=ROTATED)) for _ in range(2)]

    def replay() -> Replayed:
        with committing(fresh_database) as session:
            return replayed(session, house, now=clock(session))

    told = together(replay, replay)
    with committing(fresh_database) as session:
        rows(session, "UPDATE receipt SET received_at = received_at - interval '1 minute'")
    observe_waiting()

    with Session(fresh_database) as session:
        assert refused == [Taken.REFUSED] * 2
        assert sum(each.kept.get("waiting", 0) for each in told) == 2
        assert [row.repeat_count for row in rows(session, "SELECT repeat_count FROM receipt")] == [1]
        assert (attempt_of(session, standing).state, count_of(session, "refused_receipt")) == ("delivered", 0)
