"""What a decision is given to look at, and what stays of it: consents and their basis, caps, prices, the number's plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.people.consents import NewConsent, record_consents
from app.people.contacts import read_number
from app.people.persons import Addressee
from app.people.preferences import NewPreference, record_preferences
from policy.replay import answers_of, facts_of
from policy.states import AttemptState
from policy.words import ErrorClass, Reason
from tests.making import (
    ANNA,
    NOON,
    TWILIO,
    House,
    Standing,
    attempt_of,
    claim,
    hear,
    intent_of,
    lease,
    make_event,
    make_house,
    make_prepared,
    make_queued,
    outbox_of,
    prepare_all,
    retry_of,
    sample,
    slots_of,
)

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
PRICES = {"currency": "USD", "sms": {"US": "0.0083"}}


def make_policed(session: Session, *, rules: list[dict[str, Any]] | None = None, **transactional: object) -> House:
    """Make a house whose transactional messages go by changed rules."""
    raw = sample(cooldown="0s", **transactional) | {"prices": PRICES, "rules": rules}
    return make_house(session, policy=raw)


def agree(session: Session, house: House, act: str, *, minutes: int, ref: str = "m-1") -> None:
    about = Addressee(ref, "sms", read_number(ANNA))
    at = NOON + minutes * MINUTE
    new = NewConsent(about, None, act, "express", at, None, "w-1" if act == "grant" else None, "form")
    record_consents(session, [new], tenant_id=house.tenant_id, actor="key:test", now=at)


def decisions_of(session: Session, standing: Standing) -> list[Any]:
    return rows(session, "SELECT * FROM decision WHERE intent_id = %(id)s ORDER BY id", id=standing.intent_id)


def test_without_the_consent_that_the_policy_needs_nobody_is_contacted(session: Session) -> None:
    house = make_policed(session, consent=["express"])

    view = make_event(session, house)

    assert [(intent.state, intent.reason) for intent in view.intents] == [("suppressed", Reason.NO_CONSENT)]


def test_a_consent_is_found_by_the_address_and_named_in_the_evidence(session: Session) -> None:
    house = make_policed(session, consent=["express"])
    agree(session, house, "grant", minutes=-5, ref="m-7")

    standing = make_queued(session, house)

    evidence = decisions_of(session, standing)[0].evidence
    (consent,) = facts_of(evidence).consents
    assert (consent.kind, consent.wording) == ("express", "w-1")
    assert [answer.saw for answer in answers_of(evidence) if answer.rule == "consent"] == [{"consent": [consent.id]}]


@pytest.mark.parametrize(
    ("basis", "state", "reason"), [("dispatch", "suppressed", Reason.NO_CONSENT), ("acceptance", "queued", None)]
)
def test_the_categorys_basis_says_whether_a_withdrawal_between_acceptance_and_dispatch_counts(
    session: Session, basis: str, state: str, reason: Reason | None
) -> None:
    house = make_policed(session, consent=["express"], basis=basis)
    agree(session, house, "grant", minutes=-5)
    standing = make_queued(session, house)
    agree(session, house, "withdraw", minutes=1)

    claim(session, house, now=NOON + 2 * MINUTE)

    last = decisions_of(session, standing)[-1]
    assert (intent_of(session, standing).state, last.reason) == (state, reason)
    assert (last.moment, facts_of(last.evidence).basis) == ("dispatch", "acceptance" if basis == "acceptance" else None)


def test_what_a_person_does_not_want_is_not_sent_whatever_they_consented_to(session: Session) -> None:
    house = make_policed(session)
    about = Addressee("m-1", "sms", read_number(ANNA))
    new = NewPreference(about, "transactional", wanted=False, at=NOON - HOUR)
    record_preferences(session, [new], tenant_id=house.tenant_id, actor="key:test", now=NOON - HOUR)

    view = make_event(session, house)

    assert [(intent.state, intent.reason) for intent in view.intents] == [("suppressed", Reason.NOT_WANTED)]


def test_an_attempt_and_its_retry_have_the_price_of_the_text_as_accepted(session: Session) -> None:
    house = make_policed(session)
    standing = make_prepared(session, house)

    hear(session, standing, AttemptState.FAILED, source="answer", error_class=ErrorClass.TRANSIENT, now=NOON + MINUTE)

    attempts = [attempt_of(session, standing), attempt_of(session, retry_of(session, standing))]
    assert [(a.price, a.currency, a.segment_count) for a in attempts] == [(Decimal("0.0083"), "USD", 1)] * 2


def test_without_a_price_there_is_none(session: Session) -> None:
    standing = make_queued(session, make_house(session))

    assert (attempt_of(session, standing).price, attempt_of(session, standing).currency) == (None, None)


def test_a_text_that_is_too_long_is_suppressed_and_its_length_kept(session: Session) -> None:
    house = make_policed(session, message_cap={"max_segments": 1})

    view = make_event(session, house, data={"class": "x" * 200})

    attempt = rows(session, "SELECT * FROM attempt WHERE intent_id = %(id)s", id=view.intents[0].intent_id)[0]
    assert (view.intents[0].state, view.intents[0].reason) == ("suppressed", Reason.TOO_MANY_SEGMENTS)
    assert attempt.segment_count == 2


def test_what_the_numbers_plan_says_is_kept_for_the_dispatch(session: Session) -> None:
    standing = make_queued(session, make_policed(session))

    claim(session, standing.house, now=NOON + MINUTE)

    facts = facts_of(decisions_of(session, standing)[-1].evidence)
    assert (facts.number_type, facts.subdivisions, facts.segment_count) == ("fixed_line_or_mobile", ("NJ",), 1)
    assert len(decisions_of(session, standing)) == 1  # the same was found again, and only noted as held


def test_a_sender_is_of_the_kind_that_its_route_says(session: Session) -> None:
    rule = {"id": "us", "country": "US", "channel": "sms", "category": "transactional", "senders": ["short_code"]}
    house = make_policed(session, rules=[rule])
    settings = TWILIO | {"sender_type": "short_code"}
    other = make_house(session, policy=sample() | {"rules": [rule]}, settings=settings)

    assert make_event(session, house).intents[0].reason is Reason.SENDER_NOT_ALLOWED
    assert make_event(session, other).intents[0].state == "queued"


ONE_A_DAY = [{"limit": 1, "window": "24h", "per": "category"}]


def test_a_cap_defers_the_next_message_to_the_same_person(session: Session) -> None:
    house = make_policed(session, caps=ONE_A_DAY)
    first = make_prepared(session, house)

    second = make_queued(session, house, subject="c-2", now=NOON + MINUTE)

    outbox = outbox_of(session, second)
    assert [each["category"] for each in slots_of(session, first)["contacted"]] == ["transactional"]
    assert (outbox.reason, outbox.due_at) == (Reason.FREQUENCY_CAP, NOON + 24 * HOUR)


def test_a_handoff_that_a_decision_did_not_count_sends_it_back_to_be_taken_again(session: Session) -> None:
    house = make_policed(session, caps=ONE_A_DAY)
    first, second = (make_queued(session, house, subject=subject) for subject in ("c-1", "c-2"))
    leased = lease(session, first, now=NOON)  # and the other with it

    prepared = [prepare_all(session, each, now=NOON + SECOND) for each in (leased, replace(second, lease=leased.lease))]

    assert [len(each.handoffs) for each in prepared] == [1, 0]
    assert prepared[1].put_back == {second.attempt_id: Reason.FREQUENCY_CAP}


def test_without_caps_a_gate_remembers_nobody(session: Session) -> None:
    assert "contacted" not in slots_of(session, make_prepared(session, make_policed(session)))
