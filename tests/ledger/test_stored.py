"""Events that leave address, zone or language to what is stored; what they name counts for them alone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancel import cancel_event
from app.desk.configure import NewTemplate, publish_template
from app.desk.policy.explain import explain
from app.flows.inlet import take_inlet
from app.ground.config import settings
from app.ground.db import rows
from app.ground.ids import AttemptId
from app.ledger.accept import Refused
from app.ledger.view import EventView
from app.people.contacts import read_number
from app.people.persons import Addressee
from app.people.preferences import NewPreference, record_preferences
from app.people.recipients import NewRecipient, put_recipient, read_recipient
from policy.states import PublicState
from tests.ledger.test_set_based import counted
from tests.making import (
    ANNA,
    BEN,
    NOON,
    House,
    Standing,
    accept_all,
    ask,
    attempts_of,
    claim,
    clock,
    committing,
    count_of,
    lease,
    make_house,
    prepare_all,
    sample,
)

REF = "m-1"
MANCHESTER = "+441614960000"
TOKYO, NEW_YORK = "Asia/Tokyo", "America/New_York"
MORNING_IN_TOKYO = datetime(2026, 12, 1, 23, 0, tzinfo=UTC)  # at NOON it is 02:00 there
DAYTIME = {"id": "daytime", "windows": [{"days": ["tue", "wed", "thu"], "start": "08:00", "end": "21:00"}]}


def asked(ref: str = REF, subject: str = "c-1", **recipient: object) -> dict[str, Any]:
    """Write a request whose recipient has only what is said here."""
    return ask(subject=subject) | {"recipient": {"ref": ref} | recipient}


@pytest.fixture
def house(session: Session) -> House:
    """Make a tenant that contacts by day only, in two languages."""
    made = make_house(session, policy=sample(hours=[DAYTIME]))
    bodies = {"en": "A seat in {{ class }}.", "fr": "Une place en {{ class }}."}
    template = NewTemplate(
        name="class-opening", category="transactional", variables=["class"], bodies=bodies, default_locale="en"
    )
    publish_template(session, tenant_id=made.tenant_id, template=template, now=NOON)
    return made


def store(session: Session, house: House, *, ref: str = REF, sms: str | None = ANNA, **more: str) -> None:
    new = NewRecipient(ref, read_number(sms) if sms else None, **more)
    put_recipient(session, new, tenant_id=house.tenant_id, actor="key:test", now=NOON)


def accepted(session: Session, house: House, request: dict[str, Any]) -> EventView:
    view = accept_all(session, house, request)[0]
    assert isinstance(view, EventView), view
    return view


def problems_of(result: EventView | Refused) -> list[tuple[str, str]]:
    assert isinstance(result, Refused), result
    return [(problem.code, problem.pointer) for problem in result.problems]


def handed(session: Session, house: House, view: EventView) -> tuple[str, str]:
    """Hand an event off as far as prepare; give the address and the text."""
    attempt_id = AttemptId(attempts_of(session, view.intents[0].intent_id)[-1].id)
    leased = lease(session, Standing(house, view.event_id, view.intents[0].intent_id, attempt_id))
    submission = prepare_all(session, leased).handoffs[0].submission
    return submission.address, submission.body


def seen(session: Session, view: EventView) -> list[tuple[list[str], str, int | None]]:
    """Give the zones of an event's decisions, the oldest first, and who named them."""
    found = rows(
        session, "SELECT evidence -> 'facts' AS facts FROM decision WHERE event_id = %(id)s ORDER BY id", id=view.event_id
    )
    return [(row.facts["zones"], row.facts["zone_source"], row.facts.get("recipient_version")) for row in found]


def test_a_ref_alone_reaches_the_stored_address_in_the_stored_language(session: Session, house: House) -> None:
    store(session, house, sms=ANNA, time_zone=NEW_YORK, locale="fr-CA")

    view = accepted(session, house, asked())

    assert view.intents[0].state == PublicState.QUEUED
    assert handed(session, house, view) == (ANNA, "Une place en Spin 18:00.")
    assert count_of(session, "contact", tenant_id=house.tenant_id) == 1


def test_the_stored_zone_decides_and_the_evidence_says_whose_it_is(session: Session, house: House) -> None:
    store(session, house, sms=BEN)
    store(session, house, sms=ANNA, time_zone=TOKYO)

    view = accepted(session, house, asked())
    claim(session, house, now=MORNING_IN_TOKYO)

    assert (view.intents[0].state, view.intents[0].next_at) == (PublicState.DEFERRED, MORNING_IN_TOKYO)
    assert seen(session, view) == [([TOKYO], "declared", 2)] * 2  # at acceptance, and again when it was due
    explained = explain(session, wanted=view.intents[0].intent_id)
    assert explained is not None
    assert [d.zone_source for d in explained.decisions] == ["declared by the stored recipient, version 2"] * 2


def test_what_an_event_names_counts_for_it_alone(session: Session, house: House) -> None:
    store(session, house, sms=ANNA, time_zone=TOKYO, locale="fr")
    before = read_recipient(session, tenant_id=house.tenant_id, ref=REF)

    page = asked(sms=BEN, time_zone=NEW_YORK, locale="en"), asked(sms=MANCHESTER, subject="c-2")
    named, address_alone = accept_all(session, house, *page)

    assert isinstance(named, EventView)
    assert isinstance(address_alone, EventView)
    assert handed(session, house, named) == (BEN, "A seat in Spin 18:00.")
    assert (seen(session, named), seen(session, address_alone)) == ([([NEW_YORK], "declared", None)], [([TOKYO], "declared", 1)])
    assert read_recipient(session, tenant_id=house.tenant_id, ref=REF) == before


def test_a_stored_address_without_a_zone_has_those_of_its_number(session: Session, house: House) -> None:
    store(session, house, sms=MANCHESTER)

    view = accepted(session, house, asked())

    assert seen(session, view) == [(["Europe/London"], "number", None)]


def test_a_repeat_after_the_address_changed_or_went_is_the_same_event(session: Session, house: House) -> None:
    """The content is what was sent, not what it meant then."""
    store(session, house, sms=ANNA)
    first = accepted(session, house, asked())

    store(session, house, sms=BEN)
    moved = accepted(session, house, asked())
    store(session, house, sms=None)
    gone = accepted(session, house, asked())

    assert [(v.event_id, v.duplicate) for v in (moved, gone)] == [(first.event_id, True)] * 2
    assert handed(session, house, first)[0] == ANNA


def test_one_address_said_in_two_ways_is_other_content(session: Session, house: House) -> None:
    store(session, house, sms=ANNA)
    accepted(session, house, asked())

    assert problems_of(accept_all(session, house, asked(sms=ANNA))[0]) == [("key_reused", "/key")]


def test_nobody_and_no_address_are_refused_with_the_place_and_write_nothing(session: Session, house: House) -> None:
    store(session, house, ref="m-2", sms=None, time_zone=TOKYO)

    results = accept_all(session, house, asked("m-2"), asked("m-3"), ask(ref="m-4") | {"data": {}}, asked("m-5") | {"data": {}})

    missing, variable = ("no_address", "/recipient/sms"), ("missing_variable", "/data/class")
    assert [problems_of(result) for result in results] == [[missing], [missing], [variable], [variable, missing]]
    assert count_of(session, "event") == 0


def test_an_erased_person_is_refused_as_such(session: Session, house: House) -> None:
    store(session, house)
    rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = %(now)s", now=NOON)

    assert problems_of(accept_all(session, house, asked())[0]) == [("recipient_erased", "/recipient/ref")]


def test_another_tenants_recipient_is_nobody(session: Session, house: House) -> None:
    store(session, make_house(session))

    assert problems_of(accept_all(session, house, asked())[0]) == [("no_address", "/recipient/sms")]


def test_what_hangs_on_a_stored_address_is_seen(session: Session, house: House) -> None:
    """What a person asked for there, in a page beside others who name their address."""
    store(session, house, ref="m-1", sms=ANNA)
    store(session, house, ref="m-2", sms=MANCHESTER, time_zone=NEW_YORK)
    unwanted = NewPreference(Addressee("m-1", "sms", read_number(ANNA)), None, False, NOON)
    record_preferences(session, [unwanted], tenant_id=house.tenant_id, actor="key:test", now=NOON)

    views = accept_all(session, house, asked("m-1"), ask(ref="m-3", sms=BEN), asked("m-2"))

    states = [view.intents[0].state for view in views if isinstance(view, EventView)]
    assert states == [PublicState.SUPPRESSED, PublicState.QUEUED, PublicState.QUEUED]
    assert count_of(session, "contact", tenant_id=house.tenant_id) == 3


def test_a_joined_event_that_gets_its_turn_keeps_the_zone_that_was_stored(session: Session, house: House) -> None:
    store(session, house, sms=ANNA, time_zone=TOKYO)
    first = accepted(session, house, asked())
    joined = accepted(session, house, asked() | {"key": "again"})
    store(session, house, sms=BEN)

    cancel_event(session, tenant_id=house.tenant_id, event_id=first.event_id, actor="key:test", now=NOON)

    assert seen(session, joined) == [([TOKYO], "declared", 1)]


def test_ten_times_the_stored_recipients_take_the_same_statements(
    session: Session, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(60):
        store(session, house, ref=f"m-{n}", sms=f"+1201555{100 + n:04d}")
    accepted(session, house, asked("m-59"))  # what is read once per process is read now

    with counted(monkeypatch) as few:
        accept_all(session, house, *(asked(f"m-{n}") for n in range(5)))
    with counted(monkeypatch) as many:
        accept_all(session, house, *(asked(f"m-{n}") for n in range(5, 55)))

    assert len(many) == len(few)


def test_an_event_that_names_everything_asks_for_nothing_stored(
    session: Session, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual event pays nothing for the others."""
    with counted(monkeypatch) as statements:
        accepted(session, house, asked(sms=ANNA, time_zone=NEW_YORK, locale="en"))

    assert [s for s in statements if "FROM recipient" in s] == []


def test_the_inlet_takes_a_ref_alone_and_keeps_why_not(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session, now=clock(session))
        store(session, house)
    with psycopg.connect(settings().database_url.replace("+psycopg", "")) as connection:
        for ref in (REF, "m-2"):
            connection.execute("INSERT INTO inlet (tenant, request) VALUES (%s, %s)", (house.tenant, Jsonb(asked(ref))))

    take_inlet()

    with Session(fresh_database) as session:
        first, second = rows(session, "SELECT * FROM inlet ORDER BY id")
        assert (first.status, second.status) == ("accepted", "refused")
        assert [(p["code"], p["pointer"]) for p in second.error["problems"]] == [("no_address", "/recipient/sms")]
