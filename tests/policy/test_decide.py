from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy import rules
from policy.decide import REFUSING, WAITING, decide
from policy.document import Document
from policy.facts import Facts
from policy.replay import same
from policy.words import CATALOGUE, Category, Reason, Verdict
from tests.policy.making import (
    DAYTIME,
    NOON,
    asked_of,
    make_category,
    make_document,
    make_facts,
    make_marketing,
    make_suppression,
)

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
EVENING = NOON + 9 * HOUR  # 21:00 in New York, where the window has just closed
NEXT_MORNING = NOON + 20 * HOUR  # 08:00 the next day

no_sundays = make_marketing(hours=[DAYTIME | {"banned_weekdays": ["tue"]}])
no_holidays = make_marketing(hours=[DAYTIME | {"banned_dates": ["2026-12-01"]}])

REACHED = [
    (Verdict.ALLOW, None, make_document(), make_facts(), NOON),
    (Verdict.DEFER, Reason.NO_POLICY, None, make_facts(), NOON),
    (Verdict.DEFER, Reason.NO_POLICY, make_document(), make_facts(category=Category.OPERATIONAL), NOON),
    (Verdict.DEFER, Reason.COOLDOWN, make_document(), make_facts(cooldown_until=NOON + HOUR), NOON),
    (Verdict.DEFER, Reason.NOT_BEFORE, make_document(), make_facts(not_before=NOON + HOUR), NOON),
    (Verdict.DEFER, Reason.OUTSIDE_WINDOW, make_document(), make_facts(), EVENING),
    (Verdict.DEFER, Reason.BANNED_WEEKDAY, no_sundays, make_facts(), NOON),
    (Verdict.DEFER, Reason.BANNED_DATE, no_holidays, make_facts(), NOON),
    (Verdict.SUPPRESS, Reason.COUNTRY_BLOCKED, make_document(), make_facts(country="KP"), NOON),
    (Verdict.SUPPRESS, Reason.COUNTRY_BLOCKED, make_document(), make_facts(country="DE"), NOON),
    (Verdict.SUPPRESS, Reason.COUNTRY_BLOCKED, make_document(countries={"allowed": "all"}), make_facts(country=None), NOON),
    (Verdict.SUPPRESS, Reason.OPTED_OUT, make_document(), make_facts(suppressions=(make_suppression(None),)), NOON),
    (Verdict.SUPPRESS, Reason.NO_ROUTE, make_document(), make_facts(route_available=False), NOON),
    (Verdict.SUPPRESS, Reason.EXPIRED, make_document(), make_facts(expires_at=NOON), NOON),
    (Verdict.SUPPRESS, Reason.WOULD_EXPIRE, make_document(), make_facts(expires_at=NEXT_MORNING), EVENING),
    (Verdict.SUPPRESS, Reason.NO_COMMON_WINDOW, make_document(), make_facts(zones=()), NOON),
]


@pytest.mark.parametrize(("verdict", "reason", "document", "facts", "now"), REACHED)
def test_every_verdict_and_reason_can_be_reached(
    verdict: Verdict, reason: Reason | None, document: Document | None, facts: Facts, now: datetime
) -> None:
    decision = decide(document, facts, now=now)

    assert (decision.verdict, decision.reason) == (verdict, reason)
    assert (decision.not_before is not None) is (verdict is Verdict.DEFER)
    assert (decision.valid_until is not None) is (verdict is Verdict.ALLOW)
    assert reason is None or reason in CATALOGUE


def test_every_module_of_a_rule_is_asked() -> None:
    modules = {path.stem for path in Path(rules.__path__[0]).glob("*.py")} - {"__init__"}

    assert modules == {"in_force", *REFUSING, *WAITING}


def test_an_allowance_holds_until_the_window_closes() -> None:
    assert decide(make_document(), make_facts(), now=NOON).valid_until == EVENING


def test_an_allowance_holds_no_longer_than_the_message_matters() -> None:
    facts = make_facts(expires_at=NOON + HOUR)

    assert decide(make_document(), facts, now=NOON).valid_until == NOON + HOUR


def test_an_allowance_ends_with_its_version() -> None:
    document = make_document(effective_until="2026-12-01T17:30:00Z")

    assert decide(document, make_facts(), now=NOON).valid_until == NOON + 30 * MINUTE


def test_the_maximum_age_is_an_end_too() -> None:
    facts = make_facts(category=Category.TRANSACTIONAL, accepted_at=NOON - 3 * DAY, expires_at=None)

    assert decide(make_document(), facts, now=NOON).reason is Reason.EXPIRED
    assert decide(make_document(), facts, now=NOON - MINUTE).valid_until == NOON


@pytest.mark.parametrize("now", ["2026-10-31T23:59:59Z", "2026-12-02T00:00:00Z"])
def test_a_version_outside_its_dates_counts_as_none(now: str) -> None:
    document = make_document(effective_until="2026-12-02T00:00:00Z")
    at = datetime.fromisoformat(now)

    decision = decide(document, make_facts(accepted_at=at), now=at)

    assert (decision.verdict, decision.reason, decision.not_before) == (Verdict.DEFER, Reason.NO_POLICY, at + MINUTE)


def test_without_a_policy_nothing_is_allowed_and_nothing_dropped_but_what_is_past_its_end() -> None:
    assert decide(None, make_facts(expires_at=None), now=NOON).not_before == NOON + MINUTE
    assert decide(None, make_facts(expires_at=NOON + MINUTE), now=NOON).verdict is Verdict.DEFER
    assert decide(None, make_facts(expires_at=NOON), now=NOON).reason is Reason.EXPIRED


def test_a_suppression_is_stronger_than_any_deferral() -> None:
    facts = make_facts(suppressions=(make_suppression(Category.MARKETING),), cooldown_until=EVENING, not_before=NEXT_MORNING)

    decision = decide(make_document(), facts, now=EVENING)

    assert (decision.verdict, decision.reason) == (Verdict.SUPPRESS, Reason.OPTED_OUT)


def test_a_suppression_in_another_category_does_not_count() -> None:
    facts = make_facts(suppressions=(make_suppression(Category.OPERATIONAL),))

    assert decide(make_document(), facts, now=NOON).verdict is Verdict.ALLOW


def test_a_cooldown_that_ends_at_night_waits_for_the_morning_because_of_the_hours() -> None:
    decision = decide(make_document(), make_facts(cooldown_until=EVENING + HOUR), now=EVENING - MINUTE)

    assert (decision.reason, decision.not_before) == (Reason.OUTSIDE_WINDOW, NEXT_MORNING)
    assert asked_of(decision.evidence)[-3:] == [
        ("cooldown", "defer"),
        ("window", "defer"),
        ("expiry", "allow"),
    ]


def test_the_wait_that_ends_last_is_the_reason() -> None:
    facts = make_facts(cooldown_until=NOON + HOUR, not_before=NOON + 2 * HOUR)

    decision = decide(make_document(), facts, now=NOON)

    assert (decision.reason, decision.not_before) == (Reason.NOT_BEFORE, NOON + 2 * HOUR)


def test_a_slot_that_ends_now_is_free() -> None:
    assert decide(make_document(), make_facts(cooldown_until=NOON), now=NOON).verdict is Verdict.ALLOW


def test_evidence_names_the_version_the_facts_and_every_answer() -> None:
    document = make_document()

    evidence: Any = decide(document, make_facts(), now=NOON).evidence

    assert evidence["policy"] == {"name": "test", "version": "1", "sha256": document.sha256}
    assert evidence["facts"]["zones"] == ["America/New_York"]
    assert evidence["facts"]["accepted_at"] == "2026-12-01T16:55:00Z"
    assert asked_of(evidence) == [
        ("in_force", "allow"),
        ("country", "allow"),
        ("suppression", "allow"),
        ("route", "allow"),
        ("expiry", "allow"),
        ("cooldown", "allow"),
        ("window", "allow"),
    ]


cents = st.integers(-72 * 4, 72 * 4).map(lambda quarters: NOON + quarters * 15 * MINUTE)
maybe = st.none() | cents
facts_in_general = st.builds(
    make_facts,
    category=st.sampled_from([Category.TRANSACTIONAL, Category.MARKETING, Category.OTP]),
    country=st.sampled_from(["US", "US", "US", "KP", None]),
    zones=st.sampled_from([("America/New_York",), ("Europe/Paris", "America/New_York"), ()]),
    expires_at=maybe,
    not_before=maybe,
    cooldown_until=maybe,
    suppressions=st.sampled_from([(), (), (make_suppression(None),), (make_suppression(Category.MARKETING),)]),
)
documents = st.sampled_from([make_document(), None, make_document(effective_until="2026-12-02T00:00:00Z")])


@given(documents, facts_in_general, cents)
def test_the_same_document_facts_and_now_give_the_same_decision(document: Document | None, facts: Facts, now: datetime) -> None:
    decision = decide(document, facts, now=now)

    assert decide(document, facts, now=now) == decision
    assert same(decision, decision)


@given(documents, facts_in_general, cents)
def test_evidence_is_plain_json(document: Document | None, facts: Facts, now: datetime) -> None:
    evidence = decide(document, facts, now=now).evidence

    assert json.loads(json.dumps(evidence, allow_nan=False)) == evidence


@given(documents, facts_in_general, cents)
def test_what_is_allowed_stays_allowed_until_its_end(document: Document | None, facts: Facts, now: datetime) -> None:
    decision = decide(document, facts, now=now)
    last = (decision.valid_until or now + MINUTE) - timedelta(seconds=1)

    assert decision.valid_until is None or decide(document, facts, now=last).verdict is Verdict.ALLOW
    assert decision.valid_until is None or decide(document, facts, now=decision.valid_until).verdict is not Verdict.ALLOW


@settings(deadline=None)
@given(facts_in_general, cents, st.floats(0, 1, exclude_max=True))
def test_nothing_is_allowed_before_the_next_eligible_instant(facts: Facts, now: datetime, part: float) -> None:
    document = make_document()
    decision = decide(document, facts, now=now)
    between = now + part * ((decision.not_before or now) - now)

    assert decision.verdict is not Verdict.DEFER or decide(document, facts, now=between).verdict is Verdict.DEFER
    assert decision.reason is Reason.NO_POLICY or decision.not_before is None or is_allowed(document, facts, decision.not_before)


def is_allowed(document: Document, facts: Facts, at: datetime) -> bool:
    return decide(document, facts, now=at).verdict is Verdict.ALLOW


def test_a_later_look_that_says_the_same_need_not_be_kept() -> None:
    document, facts = make_document(), make_facts(cooldown_until=NOON + HOUR)

    assert same(decide(document, facts, now=NOON), decide(document, facts, now=NOON + MINUTE))
    assert same(decide(None, facts, now=NOON), decide(None, facts, now=NOON + MINUTE))
    assert same(decide(document, make_facts(), now=NOON), decide(document, make_facts(), now=NOON + MINUTE))


def test_another_verdict_another_time_or_other_evidence_is_kept() -> None:
    document, facts = make_document(), make_facts(cooldown_until=NOON + HOUR)
    decision = decide(document, facts, now=NOON)

    assert not same(decision, decide(document, facts, now=NOON + HOUR))
    assert not same(decision, decide(document, make_facts(cooldown_until=NOON + 2 * HOUR), now=NOON))
    assert not same(decision, decide(make_document(version="2"), facts, now=NOON))
    assert not same(decide(document, make_facts(), now=NOON), decide(document, make_facts(), now=NOON + DAY))


def test_hours_of_the_category_are_the_ones_that_count() -> None:
    document = make_document(categories={"marketing": make_category(hours=None)})

    assert decide(document, make_facts(), now=EVENING).verdict is Verdict.ALLOW
