"""Suppressions: what stands, what lifts it, and what never does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from psycopg import errors
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.ground.db import rows, run_together, transact
from app.ground.ids import new_id
from app.ledger.surroundings import statements, surroundings_of
from app.people.contacts import address_hash
from app.people.suppress import Standing, lift, standing, suppress
from policy.states import AttemptState
from policy.words import ErrorClass, SuppressedBy
from tests.making import ANNA, NOON, clock, count_of, hear, make_attempt, make_house, together

SOON: Final = NOON + timedelta(seconds=1)


def anna() -> bytes:
    return address_hash("sms", ANNA).digest


def stop(session: Session, tenant_id: UUID, **changes: Any) -> UUID:
    asked: dict[str, Any] = {"channel": "sms", "source": "keyword", "cause_id": None, "now": NOON}
    return suppress(session, tenant_id=tenant_id, address_hash=anna(), **(asked | changes))


def start(session: Session, tenant_id: UUID, *lifts: UUID, channel: str = "sms") -> list[Standing]:
    asked: dict[str, Any] = {"source": "keyword", "cause_id": None, "now": SOON}
    return lift(session, tenant_id=tenant_id, channel=channel, address_hash=anna(), lifts=lifts, **asked)


def ids(session: Session, tenant_id: UUID) -> list[UUID]:
    return [each.id for each in standing(session, tenant_id=tenant_id, address_hash=anna())]


@pytest.mark.parametrize("source", SuppressedBy)
def test_a_suppression_of_any_source_stands_with_its_provenance(session: Session, source: str) -> None:
    tenant_id, cause_id = make_house(session).tenant_id, new_id()

    kept = stop(session, tenant_id, source=source, cause_id=cause_id)

    only = Standing(kept, "sms", None, everything=False, source=source, cause_id=cause_id, at=NOON)
    assert standing(session, tenant_id=tenant_id, address_hash=anna()) == [only]


def test_decisions_see_what_stands_and_how_far_it_reaches(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    lifted = stop(session, tenant_id)
    stop(session, tenant_id, category="marketing")
    stop(session, tenant_id, everything=True)
    start(session, tenant_id, lifted)

    around = surroundings_of(session, run_together(session, statements([tenant_id], [(tenant_id, anna())], now=NOON)))

    seen = around.suppressions_of((tenant_id, anna()), channel="sms")
    assert {(each.category, each.everything) for each in seen} == {("marketing", False), (None, True)}


def test_a_lift_names_what_it_lifts_and_the_rest_stands(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    texted, complained = stop(session, tenant_id), stop(session, tenant_id, source="complaint")

    lifted = start(session, tenant_id, texted)

    assert [each.id for each in lifted] == [texted]
    assert ids(session, tenant_id) == [complained]
    assert rows(session, "SELECT lifts FROM suppression WHERE act = 'lift'")[0].lifts == [texted]


def test_a_lift_of_what_does_not_stand_here_writes_nothing(session: Session) -> None:
    tenant_id, other = make_house(session).tenant_id, make_house(session).tenant_id
    theirs, lifted = stop(session, other), stop(session, tenant_id)
    start(session, tenant_id, lifted)
    before = count_of(session, "suppression")

    assert start(session, tenant_id, theirs, lifted, new_id()) == []
    assert count_of(session, "suppression") == before
    assert ids(session, other) == [theirs]


def test_who_stops_again_after_a_lift_is_suppressed_again(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    first = stop(session, tenant_id)
    start(session, tenant_id, first)

    second = stop(session, tenant_id, now=SOON)

    assert second != first
    assert ids(session, tenant_id) == [second]


def test_the_same_said_again_is_one_row_and_marks_the_gate(session: Session) -> None:
    """A row per carrier's code, after every message, would only make decisions slow."""
    tenant_id = make_house(session).tenant_id
    first = stop(session, tenant_id)

    again = stop(session, tenant_id, now=SOON)
    wider = stop(session, tenant_id, everything=True)
    carriers = stop(session, tenant_id, source="carrier", now=SOON)

    assert again == first
    assert set(ids(session, tenant_id)) == {first, wider, carriers}
    assert rows(session, "SELECT suppressed_at FROM gate")[0].suppressed_at == SOON


def test_of_many_at_once_one_row_is_kept(fresh_database: Engine) -> None:
    with Session(fresh_database) as session:
        tenant_id, now = new_id(), clock(session)

    kept = together(*[lambda: transact(lambda tx: stop(tx.session, tenant_id, now=now))] * 8)

    assert len(set(kept)) == 1
    with Session(fresh_database) as session:
        assert count_of(session, "suppression") == 1


def test_what_reaches_everything_names_no_category(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    with pytest.raises(errors.CheckViolation):
        stop(session, tenant_id, everything=True, category="marketing")


def test_no_message_that_arrives_lifts_a_suppression(session: Session) -> None:
    """That a carrier took or delivered a text says nothing about what its reader wants."""
    house = make_house(session)
    underway = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1")
    hear(session, underway, AttemptState.FAILED, error_class=ErrorClass.OPTED_OUT, now=SOON)
    stop(session, house.tenant_id)
    before = ids(session, house.tenant_id)

    hear(session, underway, AttemptState.DELIVERED, now=SOON)

    assert len(before) == 2
    assert ids(session, house.tenant_id) == before
