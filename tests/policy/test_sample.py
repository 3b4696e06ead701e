from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import policy
from policy.countries import CountryRule
from policy.decide import decide
from policy.document import OptOutScope, Status, parse
from policy.hours import DAYS, Hours, Window
from policy.words import Category, Channel, NumberType, Reason, Verdict
from tests.policy.making import make_consent, make_facts, make_suppression

RAW: dict[str, Any] = yaml.safe_load(
    (Path(policy.__file__).parent / "documents" / "sample-2026-12-01.yaml").read_text(encoding="utf-8")
)
SAMPLE = parse(RAW)
LINES = (Path(__file__).parents[1] / "fixtures" / "sample_rules.jsonl").read_text(encoding="utf-8").splitlines()
FIXTURES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
HOLIDAYS = {name: frozenset(map(date.fromisoformat, days)) for name, days in RAW["holidays"].items()}

FIRST = datetime(2026, 2, 28, 21, tzinfo=UTC)  # a Saturday, 22:00 in Paris


def find_rule(rule_id: str) -> CountryRule:
    return next(rule for rule in SAMPLE.rules if rule.id == rule_id)


def minutes(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def hours_in(line: dict[str, Any]) -> Hours:
    """Write the hours of a fixture as ours: each kind of holiday is a list of dates in the document."""
    lists = {"none": None, "national": line["country"], "state": f"{line['country']}-{line['subdivision']}"}
    named = lists[line["banned_holidays"]]
    return Hours(
        id=line["rule_id"],
        windows=tuple(
            Window(frozenset(each for each in DAYS if each in window["days"]), minutes(window["start"]), minutes(window["end"]))
            for window in line["windows"]
        ),
        banned_weekdays=frozenset(each for each in DAYS if each in line["banned_weekdays"]),
        banned_dates=HOLIDAYS[named] if named else frozenset(),
        effective_from=line["effective_from"] and date.fromisoformat(line["effective_from"]),
        effective_until=line["effective_to"] and date.fromisoformat(line["effective_to"]),
    )


def opt_out_in(line: dict[str, Any]) -> list[tuple[str, str | None, str | None, dict[str, Any]]]:
    """Write the opt-out of a fixture as ours: (scope, from, until, terms), with its date of change as two spans."""
    terms = {name: value for name, value in line["opt_out"].items() if not name.startswith("scope_")}
    terms |= (
        {"keywords": sorted([terms["keywords"]] if isinstance(terms["keywords"], str) else terms["keywords"])}
        if ("keywords" in terms)
        else {}
    )
    if "scope_from_2027_01_31" in line["opt_out"]:
        return [("program", None, "2027-01-31", terms), ("all", "2027-01-31", None, terms)]
    return [("program", None, None, terms)]


def text(day: date | None) -> str | None:
    return None if day is None else day.isoformat()


def test_the_sample_is_reviewed_by_nobody() -> None:
    assert (SAMPLE.label, SAMPLE.status, SAMPLE.reviewer) == ("sample@2026-12-01", Status.SAMPLE, None)
    assert set(SAMPLE.categories) == set(Category)
    assert SAMPLE.number_types == frozenset({NumberType.MOBILE, NumberType.FIXED_LINE_OR_MOBILE})


def test_the_sample_has_the_rules_of_the_fixture_and_no_others() -> None:
    assert [rule.id for rule in SAMPLE.rules] == [line["rule_id"] for line in FIXTURES]
    assert SAMPLE.countries_allowed == frozenset(line["country"] for line in FIXTURES)
    assert {country for _, country in SAMPLE.prices} == SAMPLE.countries_allowed


@pytest.mark.parametrize("line", FIXTURES, ids=lambda line: line["rule_id"])
def test_every_rule_of_the_fixture_is_said_exactly(line: dict[str, Any]) -> None:
    rule = find_rule(line["rule_id"])

    assert (rule.country, rule.subdivision) == (line["country"], line["subdivision"])
    assert (rule.channel, rule.category) == (line["channel"], line["category"])
    assert (text(rule.effective_from), text(rule.effective_until)) == (line["effective_from"], line["effective_to"])
    assert rule.hours == hours_in(line)
    assert [(cap.limit, f"PT{cap.window // timedelta(hours=1)}H", cap.per) for cap in rule.caps] == [
        (cap["limit"], cap["window"], cap["per"]) for cap in line["caps"]
    ]
    assert rule.consent == set(line["consent_kinds"])
    assert rule.senders == set(line["sender"])
    assert (rule.grade or "-") == line["grade"]
    assert [
        (each.scope.value, text(each.effective_from), text(each.effective_until), each.terms) for each in rule.opt_out
    ] == opt_out_in(line)


@pytest.mark.parametrize(("line"), [line for line in FIXTURES if line["uncertain"]], ids=lambda line: line["rule_id"])
def test_what_is_uncertain_stands_above_its_rule(line: dict[str, Any]) -> None:
    written = (Path(policy.__file__).parent / "documents" / "sample-2026-12-01.yaml").read_text(encoding="utf-8")

    assert f"  # Uncertain: {line['uncertain']}.\n  - id: {line['rule_id']}\n" in written


def french(at: datetime) -> tuple[Verdict, Reason | None, datetime | None]:
    document = parse(RAW | {"effective_from": "2024-01-01T00:00:00Z"})
    facts = make_facts(
        category=Category.MARKETING,
        country="FR",
        zones=("Europe/Paris",),
        accepted_at=at,
        expires_at=at + timedelta(days=2),
        consents=(make_consent("express"),),
        sender_type="alphanumeric",
        number_type=NumberType.MOBILE,
    )
    decision = decide(document, facts, now=at)
    return decision.verdict, decision.reason, decision.not_before


def test_in_france_sundays_are_banned_up_to_february_2026_and_allowed_from_march() -> None:
    """One version says both, and the day on which they change is the person's own."""
    sunday_in_february = datetime(2026, 2, 22, 11, tzinfo=UTC)
    sunday_in_march = datetime(2026, 3, 8, 11, tzinfo=UTC)

    assert french(sunday_in_february)[:2] == (Verdict.DEFER, Reason.BANNED_WEEKDAY)
    assert french(sunday_in_march)[0] is Verdict.ALLOW


def test_in_france_what_is_closed_on_the_last_evening_of_the_old_hours_opens_under_the_new() -> None:
    """2026-03-01 is a Sunday: under the rule that had ended it would have waited until Monday."""
    assert french(FIRST) == (Verdict.DEFER, Reason.OUTSIDE_WINDOW, datetime(2026, 3, 1, 7, tzinfo=UTC))


def american(at: datetime, **changes: Any) -> tuple[Reason | None, datetime | None]:
    facts = make_facts(
        category=Category.MARKETING,
        accepted_at=at,
        expires_at=at + timedelta(days=2),
        consents=(make_consent("express_written"),),
        sender_type="short_code",
        number_type=NumberType.FIXED_LINE_OR_MOBILE,
        **({"subdivisions": ("NY",)} | changes),
    )
    decision = decide(SAMPLE, facts, now=at)
    return decision.reason, decision.not_before or decision.valid_until


NEW_SCOPE = datetime(2027, 1, 31, 5, tzinfo=UTC)  # midnight in New York


def test_an_opt_out_reaches_further_from_the_day_on_which_the_scope_changes() -> None:
    noon_before, noon_after = NEW_SCOPE - timedelta(hours=12), NEW_SCOPE + timedelta(hours=12)
    elsewhere = (make_suppression(Category.OPERATIONAL),)

    assert american(noon_before, suppressions=elsewhere)[0] is None
    assert american(noon_after, suppressions=elsewhere)[0] is Reason.OPTED_OUT
    assert find_rule("us-federal").opt_out[1].scope is OptOutScope.ALL


@pytest.mark.parametrize(
    ("subdivisions", "closes_at"),
    [(("NY",), 21), (("FL",), 20), ((), 18), (("RI",), 18)],
    ids=["federal alone", "Florida", "nobody knows which state", "Rhode Island"],
)
def test_the_stricter_of_country_and_state_counts(subdivisions: tuple[str, ...], closes_at: int) -> None:
    noon = datetime(2026, 12, 1, 17, tzinfo=UTC)

    assert american(noon, subdivisions=subdivisions) == (None, noon + timedelta(hours=closes_at - 12))


def test_texas_begins_at_noon_on_sundays_and_louisiana_does_not_begin() -> None:
    sunday = datetime(2026, 12, 6, 15, tzinfo=UTC)  # 09:00 in Chicago
    central = {"zones": ("America/Chicago",)}

    assert american(sunday, subdivisions=("TX",), **central) == (Reason.OUTSIDE_WINDOW, sunday + timedelta(hours=3))
    assert american(sunday, subdivisions=("LA",), **central) == (Reason.BANNED_WEEKDAY, sunday + timedelta(hours=23))


def test_every_channel_has_a_price_in_every_country_that_is_allowed() -> None:
    assert set(SAMPLE.prices) == {(channel, country) for channel in Channel for country in SAMPLE.countries_allowed}
