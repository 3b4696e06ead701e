"""Suppressions that are told: each act is kept once, stands until something names it, and no list undoes what was heard here."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.ground.db import rows, transact
from app.ground.ids import new_id
from app.people.contacts import address_hash, read_number
from app.people.persons import NotKept
from app.people.recipients import NewRecipient, put_recipient
from app.people.suppress import lift, standing, suppress
from app.people.suppressions import NewSuppression, Told, Whom, fingerprint_of, read_fingerprint, record_suppressions
from tests.making import ANNA, BEN, NOON, count_of, lease, make_event, make_house, make_queued, outbox_of, prepare_all, together

DAY = timedelta(days=1)
LONG_AGO = NOON - 3000 * DAY
STRANGER = Whom("sms", None, read_number(ANNA))


def said(
    act: str = "suppress",
    *,
    about: Whom = STRANGER,
    category: str | None = None,
    everything: bool = False,
    source: str = "keyword",
    at: datetime | None = LONG_AGO,
) -> NewSuppression:
    return NewSuppression(about, category, everything, act, source, at, "old list")


def record(session: Session, tenant_id: UUID, *new: NewSuppression, now: datetime = NOON) -> list[Told | NotKept]:
    return record_suppressions(session, new, tenant_id=tenant_id, cause_id=new_id(), now=now)


def outcomes(told: list[Told | NotKept]) -> list[str]:
    return [("new" if each.is_new else "known") if isinstance(each, Told) else each.value for each in told]


def stands(session: Session, tenant_id: UUID, sms: str = ANNA) -> list[str]:
    return [each.source for each in standing(session, tenant_id=tenant_id, address_hash=address_hash("sms", sms).digest)]


def heard(session: Session, tenant_id: UUID, *, source: str = "keyword", now: datetime = NOON) -> UUID:
    anna = address_hash("sms", ANNA).digest
    return suppress(session, tenant_id=tenant_id, channel="sms", address_hash=anna, source=source, cause_id=None, now=now)


def test_what_a_list_says_of_long_ago_holds_from_now_on(session: Session) -> None:
    """When it was said is kept beside when it was written down; an attempt from in between is no breach."""
    house = make_house(session)
    leased = lease(session, make_queued(session, house))

    record(session, house.tenant_id, said())
    prepared = prepare_all(session, leased)

    assert prepared.handoffs == []
    assert outbox_of(session, leased).lease is None  # it is due, to be decided again
    (row,) = rows(session, "SELECT at, told_at, reason FROM suppression WHERE tenant_id = %(t)s", t=house.tenant_id)
    assert (row.at, row.told_at, row.reason) == (NOON, LONG_AGO, "old list")


def test_an_event_for_a_listed_number_is_suppressed(session: Session) -> None:
    house = make_house(session)
    record(session, house.tenant_id, said())

    view = make_event(session, house)

    assert (view.intents[0].state, view.intents[0].reason) == ("suppressed", "opted_out")


def test_a_list_that_comes_again_changes_nothing(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    lines = (said(), said(source="complaint"), said("lift", at=LONG_AGO + DAY), said(at=LONG_AGO + 2 * DAY), said())

    first = record(session, tenant_id, *lines)
    again = record(session, tenant_id, *lines, now=NOON + DAY)

    assert outcomes(first) == ["new", "new", "new", "new", "known"]
    assert outcomes(again) == ["known"] * 5
    assert stands(session, tenant_id) == ["complaint", "keyword"]
    assert count_of(session, "suppression", tenant_id=tenant_id) == 4


def test_a_list_that_comes_again_marks_nobody_and_brings_nobody_back(session: Session) -> None:
    """What somebody lifted here by name stays lifted when last night's list comes again tonight."""
    tenant_id = make_house(session).tenant_id
    anna = address_hash("sms", ANNA).digest
    (told,) = record(session, tenant_id, said())
    assert isinstance(told, Told)
    lift(
        session, tenant_id=tenant_id, channel="sms", address_hash=anna, source="operator", cause_id=None, lifts=told.ids, now=NOON
    )

    again = record(session, tenant_id, said(), now=NOON + DAY)

    assert outcomes(again) == ["known"]
    assert stands(session, tenant_id) == []
    (gate,) = rows(session, "SELECT suppressed_at FROM gate WHERE tenant_id = %(tenant)s", tenant=tenant_id)
    assert gate.suppressed_at == NOON


@pytest.mark.parametrize(
    ("before", "lifted", "left"),
    [
        (said(), said("lift", at=LONG_AGO + DAY), []),
        (said(), said("lift", at=LONG_AGO), []),
        (said(), said("lift", at=LONG_AGO - DAY), ["keyword"]),  # said before
        (said(), said("lift", at=LONG_AGO + DAY, source="operator"), ["keyword"]),  # by somebody else
        (said(source="legal"), said("lift", at=LONG_AGO + DAY), ["legal"]),
        (said(category="marketing"), said("lift", at=LONG_AGO + DAY), []),
        (said(), said("lift", at=LONG_AGO + DAY, category="marketing"), ["keyword"]),  # of less than it reaches
        (said(category="marketing"), said("lift", at=LONG_AGO + DAY, category="marketing"), []),
        (said(everything=True), said("lift", at=LONG_AGO + DAY), []),
        (said(), said("lift", at=LONG_AGO + DAY, about=Whom("sms", None, read_number(BEN))), ["keyword"]),
    ],
)
def test_a_lift_in_a_list_takes_back_what_its_source_said_before(
    session: Session, before: NewSuppression, lifted: NewSuppression, left: list[str]
) -> None:
    tenant_id = make_house(session).tenant_id

    told = record(session, tenant_id, before, lifted)

    assert stands(session, tenant_id) == left
    assert outcomes(told) == ["new", "nothing_stands" if left else "new"]


@pytest.mark.parametrize("listed_first", [True, False])
def test_no_list_takes_back_what_was_heard_here(session: Session, *, listed_first: bool) -> None:
    """The old provider's START of last month comes with the last file, after a STOP that came to us."""
    tenant_id = make_house(session).tenant_id
    lines = [said(), said("lift", at=NOON + DAY)]

    record(session, tenant_id, *(lines[:1] if listed_first else []))
    heard(session, tenant_id, now=NOON + timedelta(hours=1))
    record(session, tenant_id, *lines, now=NOON + 2 * DAY)

    assert stands(session, tenant_id) == ["keyword"]


def test_what_a_list_says_stands_beside_what_was_heard_here(session: Session) -> None:
    """Else lifting the one by name would lift both."""
    tenant_id = make_house(session).tenant_id
    heard(session, tenant_id)

    told = record(session, tenant_id, said())

    assert outcomes(told) == ["new"]
    assert stands(session, tenant_id) == ["keyword", "keyword"]


def test_an_order_that_stands_is_not_given_again(session: Session) -> None:
    """Each source stands for itself: what one lifts leaves the others."""
    tenant_id = make_house(session).tenant_id
    order = said(source="api", at=None)

    first, again = record(session, tenant_id, order, order)
    heard(session, tenant_id)
    (other,) = record(session, tenant_id, said(source="keyword", at=None))

    assert outcomes([first, again, other]) == ["new", "known", "known"]
    assert stands(session, tenant_id) == ["api", "keyword"]


def test_a_person_is_suppressed_at_every_address_that_is_known_of_them(session: Session) -> None:
    """Also at the one of last month, and also when they were erased: an order not to contact is always taken."""
    tenant_id = make_house(session).tenant_id
    for sms in (ANNA, BEN):
        put_recipient(session, NewRecipient("m-1", read_number(sms)), tenant_id=tenant_id, actor="key:test", now=NOON)
    rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = %(now)s", now=NOON)

    told = record(session, tenant_id, said(about=Whom("sms", "m-1")), said(about=Whom("sms", "m-2")))

    assert outcomes(told) == ["new", "no_address"]
    assert (stands(session, tenant_id, ANNA), stands(session, tenant_id, BEN)) == (["keyword"], ["keyword"])


def test_of_a_stranger_nothing_is_kept_but_a_fingerprint(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    record(session, tenant_id, said())

    counts = [count_of(session, table, tenant_id=tenant_id) for table in ("suppression", "person_key", "contact")]
    assert counts == [1, 0, 0]
    text: Any = rows(session, "SELECT string_agg(s::text, '') AS text FROM suppression s")[0].text
    assert ANNA.removeprefix("+1") not in text


def test_what_is_refused_makes_nobody_known(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    member = Whom("sms", "m-1", read_number(ANNA))

    told = record(session, tenant_id, said(about=member, at=NOON + DAY), said("lift", about=member))

    assert outcomes(told) == ["in_the_future", "nothing_stands"]
    counts = [count_of(session, table, tenant_id=tenant_id) for table in ("suppression", "person_key", "contact")]
    assert counts == [0, 0, 0]


@pytest.mark.parametrize(("ref", "known"), [(None, 0), ("m-1", 1)])
def test_racing_orders_are_one(fresh_database: Engine, ref: str | None, known: int) -> None:
    """Whoever waited for the gate reads again what was said, now that nobody else writes of them."""
    tenant_id = new_id()
    order = said(about=Whom("sms", ref, read_number(ANNA)), source="api", at=None)

    told = together(*[lambda: transact(lambda tx: record(tx.session, tenant_id, order, now=tx.now)) for _ in range(4)])

    assert sorted(outcomes([each for page in told for each in page])) == ["known", "known", "known", "new"]
    with Session(fresh_database) as session:
        assert [count_of(session, table) for table in ("suppression", "gate", "person_key", "contact")] == [1, 1, known, known]


@given(st.binary(min_size=32, max_size=32))
def test_a_fingerprint_is_read_as_it_was_written(digest: bytes) -> None:
    text = fingerprint_of(digest)

    assert read_fingerprint(text) == digest
    assert read_fingerprint(f"other{text}") is None
    assert read_fingerprint(text[:-1]) is None
