from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import policy
from policy.document import (
    AtHorizon,
    Basis,
    InvalidDocument,
    NotFound,
    OptOutScope,
    RetryRoute,
    Status,
    Unheard,
    Waited,
    parse,
)
from policy.hours import Day
from policy.limits import Cap, MessageCap, Per
from policy.words import Category, Channel, ErrorClass, Lane
from tests.policy.making import DAYTIME, EVERY_DAY, make_category, make_document, make_raw, make_rule

SAMPLE = Path(policy.__file__).parent / "documents" / "sample-2026-11-01.yaml"


def make_sample() -> dict[str, Any]:
    raw: dict[str, Any] = yaml.safe_load(SAMPLE.read_text(encoding="utf-8"))
    return raw


def problems_of(raw: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidDocument) as caught:
        parse(raw)
    return {problem.path: problem.message for problem in caught.value.problems}


def test_the_sample_is_a_document_that_nobody_has_reviewed() -> None:
    sample = parse(make_sample())

    assert sample.label == "sample@2026-11-01"
    assert (sample.status, sample.reviewer) == (Status.SAMPLE, None)
    assert (sample.effective_from, sample.effective_until) == (datetime(2026, 11, 1, tzinfo=UTC), None)
    assert sample.channels == {Channel.SMS}
    assert set(sample.categories) == set(Category)


def test_the_sample_says_what_each_category_may() -> None:
    categories = parse(make_sample()).categories

    transactional, marketing = categories[Category.TRANSACTIONAL], categories[Category.MARKETING]
    assert (transactional.hours, transactional.cooldown, transactional.max_age) == ((), timedelta(minutes=10), timedelta(days=1))
    assert transactional.retry.classes == {ErrorClass.TRANSIENT}
    assert transactional.retry.max_attempts == 3
    assert transactional.retry.backoff.initial == timedelta(seconds=30)
    assert marketing.retry.classes == set()
    assert (marketing.cooldown, marketing.max_age) == (timedelta(days=1), timedelta(days=3))
    assert marketing.hours[0].windows[0].days == set(Day) - {Day.SUN}
    assert marketing.hours[0].windows[0].start_minute == 8 * 60
    assert categories[Category.OPERATIONAL].hours[0].windows[0].end_minute == 21 * 60
    assert categories[Category.OTP].cooldown == timedelta()
    assert (marketing.ambiguity.not_found, marketing.ambiguity.horizon) == (NotFound.CLOSE, AtHorizon.CLOSE)


def test_bans_and_an_end_at_midnight_are_read() -> None:
    hours = DAYTIME | {
        "windows": [{"days": ["fri"], "start": "22:00", "end": "24:00"}],
        "banned_weekdays": ["sun"],
        "banned_dates": ["2026-12-25"],
    }

    rules = make_document(categories={"marketing": make_category(hours=[hours])}).categories[Category.MARKETING]

    assert rules.hours[0].windows[0].end_minute == 24 * 60
    assert rules.hours[0].banned_weekdays == {Day.SUN}
    assert rules.hours[0].banned_dates == {date(2026, 12, 25)}


def test_instants_are_kept_in_utc() -> None:
    document = make_document(effective_from="2026-11-01T02:00:00+02:00", effective_until="2027-01-01T00:00:00Z")

    assert document.effective_from == datetime(2026, 11, 1, tzinfo=UTC)
    assert document.effective_from.tzinfo is UTC


def test_the_hash_is_of_what_is_said_and_not_of_how_it_is_written() -> None:
    raw = make_sample()
    reordered = dict(reversed(raw.items()))

    stored = json.loads(json.dumps(raw))

    assert parse(raw).sha256 == parse(reordered).sha256 == parse(stored).sha256


def test_any_change_changes_the_hash() -> None:
    raw = make_sample()
    raw["categories"]["marketing"]["cooldown"] = "25h"

    assert parse(raw).sha256 != parse(make_sample()).sha256


def test_every_mistake_is_listed_with_its_place() -> None:
    raw = make_raw(
        version=20261101,
        owner=" ",
        status="reviewed",
        effective_until="2026-10-01T00:00:00Z",
        color="red",
        countries={"allowed": ["US", "us", False], "blocked": ["US"]},
        categories={
            "promo": make_category(),
            "marketing": make_category(
                max_age="0s",
                hours=[DAYTIME | {"windows": [{"days": [], "start": 480, "end": "25:00"}]}],
                retry={"classes": ["opted_out"], "max_attempts": 0, "backoff": {"initial": "1m"}, "window": "6 h"},
                ambiguity="review",
            ),
        },
    )

    problems = problems_of(raw)

    assert set(problems) == {
        "version",
        "owner",
        "reviewer",
        "effective_until",
        "color",
        "countries.allowed[1]",
        "countries.allowed[2]",
        "countries.blocked",
        "categories.promo",
        "categories.marketing.max_age",
        "categories.marketing.hours[0].windows[0].days",
        "categories.marketing.hours[0].windows[0].start",
        "categories.marketing.hours[0].windows[0].end",
        "categories.marketing.retry.classes[0]",
        "categories.marketing.retry.max_attempts",
        "categories.marketing.retry.backoff.factor",
        "categories.marketing.retry.backoff.max",
        "categories.marketing.retry.window",
        "categories.marketing.ambiguity",
    }


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("name", lambda raw: raw.pop("name"), "is missing"),
        ("channels", lambda raw: raw.update(channels=[]), "at least one"),
        ("channels[1]", lambda raw: raw.update(channels=["sms", "sms"]), "twice"),
        ("channels[0]", lambda raw: raw.update(channels=["pigeon"]), "one of sms"),
        ("categories", lambda raw: raw.update(categories=[]), "a mapping"),
        ("effective_from", lambda raw: raw.update(effective_from="2026-11-01T00:00:00"), "zone"),
        ("effective_from", lambda raw: raw.update(effective_from="soon"), "instant"),
        ("effective_from", lambda raw: raw.update(effective_from=datetime(2026, 11, 1, tzinfo=UTC)), "in quotes"),
        ("effective_until", lambda raw: raw.update(effective_until="2026-11-01T00:00:00Z"), "later than"),
    ],
)
def test_a_mistake_is_told_in_words(path: str, change: Callable[[dict[str, Any]], object], message: str) -> None:
    raw = make_raw()
    change(raw)

    assert message in problems_of(raw)[path]


@pytest.mark.parametrize(
    ("path", "rules", "message"),
    [
        ("hours[0].windows[0].end", {"windows": [{"days": EVERY_DAY, "start": "08:00", "end": "08:00"}]}, "differ"),
        ("hours[0].windows[0].start", {"windows": [{"days": EVERY_DAY, "start": "24:00", "end": "08:00"}]}, "time in quotes"),
        ("hours[0].windows[0].end", {"windows": [{"days": EVERY_DAY, "start": "08:00", "end": 1260}]}, "1260"),
        ("hours[0].windows[0].days[0]", {"windows": [{"days": ["monday"], "start": "08:00", "end": "9:00"}]}, "mon, tue"),
        ("hours[0].banned_dates[0]", {"banned_dates": [date(2026, 12, 25)]}, "in quotes"),
        ("hours[0].banned_dates[0]", {"banned_dates": ["2026-02-30"]}, "a date"),
        ("hours[0].windows", {"windows": []}, "at least one"),
    ],
)
def test_a_mistake_in_the_hours_is_told_in_words(path: str, rules: dict[str, Any], message: str) -> None:
    raw = make_raw(categories={"marketing": make_category(hours=[DAYTIME | rules])})

    assert message in problems_of(raw)[f"categories.marketing.{path}"]


SECOND_ATTEMPTS: list[tuple[str, dict[str, Any], str]] = [
    ("retry.route", {"route": "best"}, "same, next"),
    ("retry.carrier", {"carrier": "acme"}, "not a key"),
    ("ambiguity.waited", {"waited": "2h"}, "a mapping"),
    ("ambiguity.waited.then", {"waited": {"after": "2h"}}, "is missing"),
    ("ambiguity.waited.then", {"waited": {"after": "2h", "then": "retry"}}, "resend, review, close"),
    ("ambiguity.waited.after", {"waited": {"after": "0s", "then": "close"}}, "longer than nothing"),
]


@pytest.mark.parametrize(("path", "change", "message"), SECOND_ATTEMPTS)
def test_a_mistake_in_the_rules_for_second_attempts_is_told_in_words(path: str, change: dict[str, Any], message: str) -> None:
    rules = make_category()
    rules[path.partition(".")[0]] |= change

    assert message in problems_of(make_raw(categories={"marketing": rules}))[f"categories.marketing.{path}"]


def test_the_rules_for_second_attempts_are_read_and_may_be_left_out() -> None:
    rules = make_category()
    rules["retry"] |= {"route": "next"}
    rules["ambiguity"] |= {"waited": {"after": "2h", "then": "resend"}}

    told = make_document(categories={"marketing": rules}).categories[Category.MARKETING]
    left_out = make_document().categories[Category.MARKETING]

    assert (told.retry.route, told.ambiguity.waited) == (RetryRoute.NEXT, Waited(timedelta(hours=2), Unheard.RESEND))
    assert (left_out.retry.route, left_out.ambiguity.waited) == (RetryRoute.SAME, None)


@pytest.mark.parametrize("factor", [1.5, True, "2", 0])
def test_a_factor_is_a_whole_number(factor: object) -> None:
    """A fraction could come back out of jsonb written otherwise, and the hash would not be found again."""
    rules = make_category()
    rules["retry"]["backoff"]["factor"] = factor

    assert "categories.marketing.retry.backoff.factor" in problems_of(make_raw(categories={"marketing": rules}))


def test_a_mistake_in_one_place_is_told_once() -> None:
    raw = make_raw(effective_until="soon", channels=["pigeon", "pigeon"])

    with pytest.raises(InvalidDocument) as caught:
        parse(raw)

    assert [problem.path for problem in caught.value.problems] == ["effective_until", "channels[1]", "channels[0]"]
    assert str(caught.value).startswith("effective_until: must be an instant")


def test_all_countries_may_be_allowed_and_none_blocked() -> None:
    assert make_document(countries={"allowed": "all"}).countries_allowed == "all"
    assert make_document(countries={"allowed": ["US"], "blocked": None}).countries_blocked == set()


def test_what_an_older_document_leaves_out_is_as_it_was() -> None:
    rules = make_document().categories[Category.MARKETING]

    assert (rules.consent, rules.caps, rules.message_cap, rules.lane) == (frozenset(), (), None, None)
    assert (rules.basis, rules.opt_out) == (Basis.DISPATCH, OptOutScope.PROGRAM)
    assert (make_document().number_types, make_document().rules, make_document().prices) == (None, (), {})
    assert make_document().longest_cap is None


def test_a_category_may_say_more() -> None:
    rules = make_document(
        categories={
            "marketing": make_category(
                consent=["express", "night"],
                opt_out="all",
                basis="acceptance",
                caps=[{"limit": 2, "window": "7d", "per": "person"}],
                message_cap={"max_segments": 3},
                lane="urgent",
                horizon="72h",
                retention="0d",
            )
        }
    ).categories[Category.MARKETING]

    assert rules.consent == {"express", "night"}
    assert (rules.opt_out, rules.basis) == (OptOutScope.ALL, Basis.ACCEPTANCE)
    assert rules.caps == (Cap(2, timedelta(days=7), Per.PERSON),)
    assert rules.message_cap == MessageCap(3, None)
    assert (rules.lane, rules.horizon, rules.retention) == (Lane.URGENT, timedelta(hours=72), timedelta())


PRICED = {"currency": "USD", "sms": {"US": "0.0083"}}


@pytest.mark.parametrize(
    ("path", "rule", "message"),
    [
        ("rules[0].country", {"country": "usa"}, "two capital letters"),
        ("rules[0].subdivision", {"subdivision": "Florida"}, "ISO 3166-2"),
        ("rules[0].category", {"category": "promo"}, "must be one of"),
        ("rules[0].effective_from", {"effective_from": "2026-03"}, "a date"),
        ("rules[0].effective_until", {"effective_from": "2026-03-01", "effective_until": "2026-03-01"}, "later than"),
        ("rules[0].windows", {"windows": []}, "at least one"),
        ("rules[0].banned_holidays[0]", {"banned_holidays": ["FR"]}, "there are none"),
        ("rules[0].caps[0].limit", {"caps": [{"limit": 0, "window": "24h", "per": "subject"}]}, "at least 1"),
        ("rules[0].caps[0].per", {"caps": [{"limit": 1, "window": "24h", "per": "day"}]}, "subject, category, person"),
        ("rules[0].consent", {"consent": []}, "at least one"),
        ("rules[0].consent", {"consent": "express"}, "a list"),
        ("rules[0].senders[0]", {"senders": [10]}, "in quotes"),
        ("rules[0].opt_out[0].scope", {"opt_out": [{"scope": "sender"}]}, "named, program, all"),
        ("rules[0].opt_out[0].every_message", {"opt_out": [{"every_message": "yes"}]}, "true or false"),
        ("rules[0].opt_out[0].keyword", {"opt_out": [{"keyword": "STOP"}]}, "not a key"),
        ("rules[0].price.amount", {"price": {"amount": 0.0083, "currency": "USD"}}, "a decimal in quotes"),
        ("rules[0].price.currency", {"price": {"amount": "0.0083", "currency": "usd"}}, "three capital letters"),
        ("rules", {"price": {"amount": "0.0083", "currency": "EUR"}}, "more than one currency"),
        ("rules[0].message_cap", {"message_cap": {}}, "max_segments, max_price or both"),
        ("rules[1]", {"id": "us", "senders": ["short_code"]}, "of another rule"),
    ],
)
def test_a_mistake_in_a_countrys_rule_is_told_in_words(path: str, rule: dict[str, Any], message: str) -> None:
    raw = make_raw(prices=PRICED, rules=[make_rule(id="first") | rule, make_rule()])

    assert message in problems_of(raw)[path]


@pytest.mark.parametrize(
    ("path", "changes", "message"),
    [
        ("number_types[0]", {"number_types": ["MOBILE"]}, "mobile, fixed_line_or_mobile"),
        ("prices.sms.US", {"prices": {"currency": "USD", "sms": {"US": "free"}}}, "a decimal in quotes"),
        ("prices.currency", {"prices": {"sms": {"US": "1"}}}, "is missing"),
        ("holidays.FR[0]", {"holidays": {"FR": ["Christmas"]}}, "a date"),
        ("prices", {"rules": [make_rule(message_cap={"max_price": "1"})]}, "names a max_price"),
    ],
)
def test_a_mistake_in_what_a_document_may_say_is_told_in_words(path: str, changes: dict[str, Any], message: str) -> None:
    assert message in problems_of(make_raw(**changes))[path]


def test_holidays_are_named_once_and_banned_where_they_are_named() -> None:
    (rule,) = make_document(
        holidays={"FR": ["2026-12-25", "2027-01-01"], "DE": ["2026-12-26"]}, rules=[make_rule(banned_holidays=["FR", "DE"])]
    ).rules

    assert rule.hours is not None
    assert rule.hours.banned_dates == {date(2026, 12, 25), date(2027, 1, 1), date(2026, 12, 26)}
    assert rule.hours.windows[0].holds(datetime(2026, 12, 24, 23, 59, tzinfo=UTC))
