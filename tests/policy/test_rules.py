"""What each rule says of facts that only it looks at."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from policy.applicable import price_of
from policy.decide import decide
from policy.document import Document
from policy.facts import Contacted, Preference, Suppression
from policy.limits import Price
from policy.words import Category, Channel, NumberType, Reason, Verdict
from tests.policy.making import (
    DAYTIME,
    NOON,
    make_category,
    make_consent,
    make_document,
    make_facts,
    make_marketing,
    make_rule,
)

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)

ASKS_FOR_CONSENT = make_marketing(consent=["express", "soft_opt_in"])


def make_ruled(*rules: dict[str, Any], **changes: Any) -> Document:
    """Make a document with rules of the United States beside an open category."""
    return make_document(categories={"marketing": make_category()}, rules=list(rules), **changes)


def said(document: Document, **facts: Any) -> tuple[Verdict, Reason | None]:
    decision = decide(document, make_facts(**facts), now=NOON)
    return decision.verdict, decision.reason


ALLOWED = (Verdict.ALLOW, None)
NO_CONSENT = (Verdict.SUPPRESS, Reason.NO_CONSENT)


@pytest.mark.parametrize(
    ("consents", "expected"),
    [
        ((), NO_CONSENT),
        ((make_consent("express"),), ALLOWED),
        ((make_consent("night"),), NO_CONSENT),
        ((make_consent("express", category=Category.MARKETING),), ALLOWED),
        ((make_consent("express", category=Category.OPERATIONAL),), NO_CONSENT),
        ((make_consent("express", expires_at=NOON),), NO_CONSENT),
        ((make_consent("express", expires_at=NOON + HOUR),), ALLOWED),
        ((make_consent("express"), make_consent("express", withdrawn=True, age=HOUR)), NO_CONSENT),
        ((make_consent("express"), make_consent(None, withdrawn=True, age=HOUR)), NO_CONSENT),
        ((make_consent("express"), make_consent("express", withdrawn=True)), NO_CONSENT),
        ((make_consent("express"), make_consent("soft_opt_in", withdrawn=True, age=HOUR)), ALLOWED),
        ((make_consent("express", age=HOUR), make_consent("express", withdrawn=True)), ALLOWED),
        ((make_consent("express"), make_consent("express", withdrawn=True, category=Category.OPERATIONAL, age=HOUR)), ALLOWED),
        ((make_consent("express"), make_consent("express", withdrawn=True, category=Category.MARKETING, age=HOUR)), NO_CONSENT),
    ],
)
def test_a_consent_counts_while_it_lives_and_nobody_withdrew_it(consents: Any, expected: object) -> None:
    """A withdrawal as late as the consent undoes it; a later consent stands again."""
    assert said(ASKS_FOR_CONSENT, consents=consents) == expected


def test_an_allowance_lasts_no_longer_than_the_consent_that_lasts_longest() -> None:
    consents = (make_consent("express", expires_at=NOON + HOUR), make_consent("soft_opt_in", expires_at=NOON + 2 * HOUR))

    decision = decide(ASKS_FOR_CONSENT, make_facts(consents=consents), now=NOON)

    assert decision.valid_until == NOON + 2 * HOUR


def test_a_countrys_kinds_of_consent_take_the_place_of_the_categorys() -> None:
    document = make_document(
        categories={"marketing": make_category(consent=["express"])}, rules=[make_rule(consent=["express_written"])]
    )

    assert said(document, consents=(make_consent("express"),)) == NO_CONSENT
    assert said(document, consents=(make_consent("express_written"),)) == ALLOWED
    assert said(document, consents=(make_consent("express"),), country="FR") == ALLOWED


def test_where_no_consent_is_needed_a_withdrawn_one_changes_nothing() -> None:
    """To be left alone is a suppression, or a preference."""
    assert said(make_document(), consents=(make_consent("express", withdrawn=True),)) == ALLOWED


def make_preference(category: Category | None, *, wanted: bool, age: timedelta = DAY) -> Preference:
    return Preference("p-1", category, wanted, NOON - age)


@pytest.mark.parametrize(
    ("preferences", "expected"),
    [
        ((make_preference(Category.MARKETING, wanted=False),), (Verdict.SUPPRESS, Reason.NOT_WANTED)),
        ((make_preference(None, wanted=False),), (Verdict.SUPPRESS, Reason.NOT_WANTED)),
        ((make_preference(Category.OPERATIONAL, wanted=False),), ALLOWED),
        ((make_preference(None, wanted=False), make_preference(Category.MARKETING, wanted=True, age=HOUR)), ALLOWED),
        (
            (make_preference(None, wanted=False), make_preference(Category.MARKETING, wanted=True)),
            (Verdict.SUPPRESS, Reason.NOT_WANTED),
        ),
    ],
)
def test_the_last_preference_for_the_category_counts(preferences: Any, expected: object) -> None:
    assert said(make_document(), preferences=preferences) == expected


def test_a_kind_of_number_that_is_not_listed_is_suppressed_and_one_that_nobody_kept_is_not_judged() -> None:
    document = make_document(number_types=["mobile"])

    assert said(document, number_type=NumberType.TOLL_FREE) == (Verdict.SUPPRESS, Reason.NUMBER_TYPE_BLOCKED)
    assert said(document, number_type=NumberType.MOBILE) == ALLOWED
    assert said(document, number_type=None) == ALLOWED
    assert said(make_document(), number_type=NumberType.TOLL_FREE) == ALLOWED


def test_a_sender_must_be_of_a_kind_that_every_rule_lists() -> None:
    document = make_ruled(make_rule(id="us", senders=["a", "b"]), make_rule(id="us-fl", subdivision="FL", senders=["b"]))
    refused = (Verdict.SUPPRESS, Reason.SENDER_NOT_ALLOWED)

    assert said(document, sender_type="a", subdivisions=("NY",)) == ALLOWED
    assert said(document, sender_type="a", subdivisions=("FL",)) == refused
    assert said(document, sender_type="b", subdivisions=("FL",)) == ALLOWED
    assert said(document, sender_type=None) == refused
    assert said(document, sender_type=None, country="FR") == ALLOWED


PRICED = {"currency": "USD", "sms": {"US": "0.0083", "FR": "0.08"}}


def test_a_text_that_is_too_long_or_too_dear_is_suppressed() -> None:
    document = make_document(
        categories={"marketing": make_category(message_cap={"max_segments": 3, "max_price": "0.16"})}, prices=PRICED
    )

    assert said(document, segment_count=3) == ALLOWED
    assert said(document, segment_count=4) == (Verdict.SUPPRESS, Reason.TOO_MANY_SEGMENTS)
    assert said(document, segment_count=2, country="FR") == ALLOWED
    assert said(document, segment_count=3, country="FR") == (Verdict.SUPPRESS, Reason.TOO_EXPENSIVE)
    assert said(document, segment_count=None) == ALLOWED


def test_a_price_is_exact_and_that_of_the_nearest_rule() -> None:
    dearer = make_rule(id="us-fl", subdivision="FL", price={"amount": "0.0101", "currency": "USD"})
    document = make_ruled(dearer, prices=PRICED)

    assert price_of(document, make_facts(segment_count=3), NOON) == Price(Decimal("0.0249"), "USD")
    assert price_of(document, make_facts(segment_count=3, subdivisions=("FL",)), NOON) == Price(Decimal("0.0303"), "USD")
    assert price_of(document, make_facts(segment_count=3, country="DE"), NOON) is None
    assert price_of(document, make_facts(segment_count=None), NOON) is None


def make_contacted(age: timedelta, category: Category = Category.MARKETING, *, same_subject: bool = False) -> Contacted:
    return Contacted(NOON - age, category, same_subject)


@pytest.mark.parametrize(
    ("per", "contacted", "free_at"),
    [
        ("category", (make_contacted(HOUR),), None),
        ("category", (make_contacted(HOUR), make_contacted(3 * HOUR)), NOON + 21 * HOUR),
        ("category", (make_contacted(HOUR), make_contacted(2 * HOUR), make_contacted(3 * HOUR)), NOON + 22 * HOUR),
        ("category", (make_contacted(HOUR), make_contacted(DAY)), None),
        ("category", (make_contacted(HOUR), make_contacted(HOUR, Category.OPERATIONAL)), None),
        ("person", (make_contacted(HOUR), make_contacted(HOUR, Category.OPERATIONAL)), NOON + 23 * HOUR),
        ("subject", (make_contacted(HOUR), make_contacted(HOUR, same_subject=True)), None),
        ("subject", (make_contacted(HOUR, same_subject=True),) * 2, NOON + 23 * HOUR),
    ],
)
def test_a_cap_waits_until_there_is_room_in_its_rolling_window(per: str, contacted: Any, free_at: object) -> None:
    document = make_document(categories={"marketing": make_category(caps=[{"limit": 2, "window": "24h", "per": per}])})

    decision = decide(document, make_facts(contacted=contacted), now=NOON)

    assert (decision.verdict, decision.not_before) == (Verdict.DEFER if free_at else Verdict.ALLOW, free_at)
    assert decision.reason is (Reason.FREQUENCY_CAP if free_at else None)


def test_a_cap_that_ends_at_night_waits_for_the_morning() -> None:
    document = make_marketing(caps=[{"limit": 1, "window": "12h", "per": "category"}])

    decision = decide(document, make_facts(contacted=(make_contacted(HOUR),)), now=NOON)

    assert (decision.reason, decision.not_before) == (Reason.OUTSIDE_WINDOW, NOON + 20 * HOUR)


def make_stop(category: Category | None, source: str = "keyword") -> Suppression:
    return Suppression("s-1", category, source, NOON - DAY)


@pytest.mark.parametrize(
    ("scope", "covered"),
    [
        ("named", [make_stop(Category.MARKETING), make_stop(None, "operator"), make_stop(None, "carrier")]),
        ("program", [make_stop(Category.MARKETING), make_stop(None, "operator"), make_stop(None)]),
        ("all", [make_stop(Category.MARKETING), make_stop(None), make_stop(Category.OPERATIONAL)]),
    ],
)
def test_an_opt_out_reaches_as_far_as_the_category_says(scope: str, covered: list[Suppression]) -> None:
    document = make_marketing(opt_out=scope)

    assert [said(document, suppressions=(row,))[1] for row in covered] == [Reason.OPTED_OUT] * 3


@pytest.mark.parametrize(
    ("scope", "row"), [("named", make_stop(None)), ("named", make_stop(Category.OTP)), ("program", make_stop(Category.OTP))]
)
def test_an_opt_out_reaches_no_further(scope: str, row: Suppression) -> None:
    assert said(make_marketing(opt_out=scope), suppressions=(row,)) == ALLOWED


@pytest.mark.parametrize("scope", ["named", "program", "all"])
def test_what_reaches_everything_covers_whatever_the_version_says(scope: str) -> None:
    row = Suppression("s-1", None, "keyword", NOON - DAY, everything=True)

    assert said(make_marketing(opt_out=scope), suppressions=(row,))[1] == Reason.OPTED_OUT


def test_a_rule_holds_on_the_dates_of_the_persons_own_calendar() -> None:
    """It is the second of December in Tokyo while it is still the first in New York."""
    document = make_ruled(make_rule(consent=["express"], effective_from="2026-12-02"))
    later = {"accepted_at": NOON, "expires_at": NOON + 3 * DAY}

    assert said(document, zones=("America/New_York",), **later) == ALLOWED
    assert said(document, zones=("Asia/Tokyo",), **later) == NO_CONSENT
    assert said(document, zones=("America/New_York", "Asia/Tokyo"), **later) == NO_CONSENT


def test_a_rule_that_begins_ends_the_allowance_that_did_not_know_it() -> None:
    document = make_ruled(make_rule(consent=["express"], effective_from="2026-12-02"))

    decision = decide(document, make_facts(), now=NOON)

    assert decision.valid_until == NOON + 12 * HOUR
    assert decide(document, make_facts(), now=NOON + 12 * HOUR).reason is Reason.NO_CONSENT


def test_an_allowance_ends_when_an_opt_out_reaches_further() -> None:
    scopes = [{"scope": "program", "effective_until": "2026-12-02"}, {"scope": "all", "effective_from": "2026-12-02"}]
    document = make_ruled(make_rule(opt_out=scopes))
    elsewhere = make_facts(suppressions=(make_stop(Category.OPERATIONAL),), zones=("Pacific/Honolulu",))
    midnight = NOON + 17 * HOUR

    decision = decide(document, elsewhere, now=NOON)

    assert (decision.verdict, decision.valid_until) == (Verdict.ALLOW, midnight)
    assert decide(document, elsewhere, now=midnight).reason is Reason.OPTED_OUT


def test_who_was_asked_about_before_does_not_change_the_answer() -> None:
    """A document remembers which rules hold for the next person of the same place; here they change around the globe."""

    def make() -> Document:
        return make_ruled(make_rule(consent=["express"], effective_from="2026-12-02", effective_until="2026-12-03"))

    zones = ["Pacific/Kiritimati", "America/New_York", "Pacific/Pago_Pago"]
    asked = [(zone, NOON + n * HOUR) for zone in zones for n in range(-60, 84)]
    asked += [asked[n * 85 % len(asked)] for n in range(len(asked))]  # and once more, criss-cross
    document = make()

    told = [decide(document, make_facts(zones=(zone,), accepted_at=at, expires_at=None), now=at) for zone, at in asked]

    fresh = [decide(make(), make_facts(zones=(zone,), accepted_at=at, expires_at=None), now=at) for zone, at in asked]
    assert told == fresh
    assert {decision.reason for decision in told} >= {None, Reason.NO_CONSENT}


@pytest.mark.parametrize(
    "other", [{"country": "FR"}, {"category": "operational"}, {"subdivision": "FL"}, {"effective_until": "2026-12-01"}]
)
def test_a_rule_of_another_country_part_category_or_time_says_nothing(other: dict[str, Any]) -> None:
    document = make_ruled(make_rule(consent=["express"], **other))

    assert said(document, subdivisions=("NY",), channel=Channel.SMS) == ALLOWED


def test_hours_of_the_category_and_of_the_country_must_both_be_open() -> None:
    late = {"windows": [{"days": ["tue"], "start": "14:00", "end": "23:00"}]}
    document = make_document(categories={"marketing": make_category(hours=[DAYTIME])}, rules=[make_rule(**late)])

    decision = decide(document, make_facts(), now=NOON)
    later = decide(document, make_facts(), now=NOON + 2 * HOUR)

    assert (decision.reason, decision.not_before) == (Reason.OUTSIDE_WINDOW, NOON + 2 * HOUR)
    assert (later.verdict, later.valid_until) == (Verdict.ALLOW, NOON + 9 * HOUR)
