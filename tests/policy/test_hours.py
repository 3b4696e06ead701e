from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decide import Decision, decide
from policy.document import Document
from policy.facts import ZoneSource
from policy.hours import HORIZON
from policy.replay import answers_of
from policy.words import Category, Reason, Verdict
from policy.zones import find_zone
from tests.policy.making import EVERY_DAY, make_category, make_document, make_facts, make_rule

LINES = (Path(__file__).parents[1] / "fixtures" / "quiet_hours.jsonl").read_text(encoding="utf-8").splitlines()
FIXTURES: list[dict[str, Any]] = [json.loads(line) for line in LINES]
VERDICTS = {"allowed": Verdict.ALLOW, "deferred": Verdict.DEFER, "no_window": Verdict.SUPPRESS}

MINUTE = timedelta(minutes=1)
DATES = {"effective_from", "effective_until"}
HOLIDAYS = ["2026-03-08", "2026-03-29", "2026-10-04", "2026-11-01"]
LONG_ENOUGH = timedelta(days=60)


def as_rule(hours: dict[str, Any], category: Category) -> dict[str, Any]:
    """Write dated hours as a rule of the country that the facts are about."""
    named = {"banned_holidays": ["holidays"] if hours["banned_dates"] else []}
    return make_rule(category=category.value) | {key: value for key, value in hours.items() if key != "banned_dates"} | named


def make_hours(hours: list[dict[str, Any]], category: Category = Category.MARKETING) -> Document:
    """Make a document that speaks of hours only: every country, any year, no end in sight; dated hours are rules of one."""
    rules = make_category(hours=[each for each in hours if not DATES & each.keys()], max_age="400d", cooldown="0s")
    return make_document(
        effective_from="2000-01-01T00:00:00Z",
        countries={"allowed": "all"},
        categories={category.value: rules},
        holidays={"holidays": HOLIDAYS},
        rules=[as_rule(each, category) for each in hours if DATES & each.keys()],
    )


def decide_for(document: Document, zones: Sequence[str], now: datetime, **changes: Any) -> Decision:
    facts = make_facts(
        zones=tuple(zones), zone_source=ZoneSource.DECLARED, accepted_at=now, expires_at=now + LONG_ENOUGH, **changes
    )
    return decide(document, facts, now=now)


def blocking_in(evidence: Any) -> object:  # nested JSON
    windows = (answer for answer in answers_of(evidence) if answer.rule == "window")
    return next((answer.saw.get("blocking", []) for answer in windows), [])


@pytest.mark.parametrize("line", FIXTURES, ids=lambda line: f"{line['id']} {line['title']}")
def test_quiet_hours_are_as_the_fixture_says(line: dict[str, Any]) -> None:
    category, expected = Category(line["category"]), line["expect"]
    document = make_hours(line["rules"], category)

    decision = decide_for(
        document, line["zones"], datetime.fromisoformat(line["now"]), category=category, country=line["country"]
    )

    next_eligible = expected["next_eligible"] and datetime.fromisoformat(expected["next_eligible"])
    assert timedelta(days=line["horizon_days"]) == HORIZON
    assert (decision.verdict, decision.reason) == (VERDICTS[expected["decision"]], expected["reason"])
    assert decision.not_before == next_eligible
    assert blocking_in(decision.evidence) == expected["blocking"]


@dataclass(frozen=True, slots=True)
class Case:
    """Some hours, the zones a person may be in, and a moment."""

    hours: list[dict[str, Any]]
    zones: list[str]
    now: datetime


# Clock changes of an hour, of thirty minutes and of two hours, at midnight, for Ramadan; offsets of
# quarter hours; both sides of the date line; none at all.
ZONES = [
    "America/New_York",
    "Europe/Paris",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/St_Johns",
    "Asia/Kathmandu",
    "Pacific/Chatham",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "America/Vancouver",
    "Asia/Tokyo",
]
# Days around which clocks change somewhere in that list.
CHANGES = [
    datetime(2026, 3, 8, tzinfo=UTC),
    datetime(2026, 3, 29, tzinfo=UTC),
    datetime(2026, 4, 5, tzinfo=UTC),
    datetime(2026, 4, 24, tzinfo=UTC),
    datetime(2026, 9, 27, tzinfo=UTC),
    datetime(2026, 10, 4, tzinfo=UTC),
    datetime(2026, 10, 25, tzinfo=UTC),
    datetime(2026, 10, 30, tzinfo=UTC),
    datetime(2026, 11, 1, tzinfo=UTC),
]

clock_times = st.builds(lambda hour, minute: f"{hour:02}:{minute:02}", st.integers(0, 23), st.sampled_from([0, 15, 30, 59]))
windows = (
    st.fixed_dictionaries(
        {
            "days": st.lists(st.sampled_from(EVERY_DAY), min_size=1, unique=True),
            "start": clock_times,
            "end": clock_times | st.just("24:00"),
        }
    )
    .filter(lambda window: window["start"] != window["end"])
    .map(dict[str, Any])
)
some_hours = st.fixed_dictionaries(
    {
        "id": st.just("some"),
        "windows": st.lists(windows, min_size=1, max_size=2, unique_by=partial(json.dumps, sort_keys=True)),
        "banned_weekdays": st.lists(st.sampled_from(EVERY_DAY), max_size=2, unique=True),
        "banned_dates": st.lists(st.sampled_from(HOLIDAYS), unique=True),
    }
).map(dict[str, Any])
days = st.sampled_from(["2026-03-07", "2026-03-30", "2026-04-24", "2026-10-05", "2026-10-31", "2026-11-02"])
# Of a country, and in force between two dates only; its holidays are a list that the document names.
dated_hours = st.builds(
    lambda hours, first, last, with_holidays: (
        hours | {"effective_from": first, "effective_until": last} | {"banned_dates": HOLIDAYS if with_holidays else []}
    ),
    some_hours,
    days,
    st.none() | st.just("2026-11-03"),
    st.booleans(),
)
nows = st.builds(
    lambda day, minutes, seconds: day + timedelta(minutes=minutes, seconds=seconds),
    st.sampled_from(CHANGES),
    st.integers(-2 * 24 * 60, 2 * 24 * 60),
    st.sampled_from([0, 0, 1, 59.5]),
)
cases = st.builds(
    Case,
    hours=st.lists(some_hours | dated_hours, min_size=1, max_size=2).map(
        lambda hours: [rule | {"id": f"hours-{n}"} for n, rule in enumerate(hours)]
    ),
    zones=st.lists(st.sampled_from(ZONES), min_size=1, max_size=3, unique=True),
    now=nows,
)


def minutes_of(clock: str) -> int:
    return int(clock[:2]) * 60 + int(clock[3:])


def open_minutes(hours: dict[str, Any]) -> set[tuple[str, int]]:
    """Spell out every open (weekday, minute) of a week, one by one."""
    minutes: set[tuple[str, int]] = set()
    for window in hours["windows"]:
        start, end = minutes_of(window["start"]), minutes_of(window["end"])
        for minute in range(start, end if end > start else end + 24 * 60):
            minutes |= {(EVERY_DAY[(EVERY_DAY.index(day) + minute // 1440) % 7], minute % 1440) for day in window["days"]}
    return {(day, minute) for day, minute in minutes if day not in hours["banned_weekdays"]}


def opening(case: Case) -> Callable[[datetime], bool]:
    """Read the pointwise definition off the hours, with nothing of the code under test but the zone data."""
    weeks = [(hours, open_minutes(hours), set(hours["banned_dates"])) for hours in case.hours]
    zones = [find_zone(zone) for zone in case.zones]

    def is_open(at: datetime) -> bool:
        locals_ = [at.astimezone(zone) for zone in zones]
        return all(
            not (hours.get("effective_from") or "") <= local.date().isoformat() < (hours.get("effective_until") or "9999")
            or ((EVERY_DAY[local.weekday()], local.hour * 60 + local.minute) in week and local.date().isoformat() not in banned)
            for local in locals_
            for hours, week, banned in weeks
        )

    return is_open


def first_minute(case: Case, *, wanted: bool) -> datetime | None:
    """Look at every whole minute after now, one by one, up to the horizon."""
    is_open = opening(case)
    start = case.now.replace(second=0, microsecond=0) + MINUTE
    minutes = int((case.now + HORIZON - start) / MINUTE) + 1
    return next((at for n in range(minutes) if is_open(at := start + n * MINUTE) is wanted), None)


def turns_of_rules(case: Case) -> list[datetime]:
    """Find when a dated rule begins or ends somewhere: an allowance is asked for again then."""
    dates = {date.fromisoformat(hours[key]) for hours in case.hours for key in DATES if hours.get(key)}
    midnights = (datetime.combine(day, time(), tzinfo=find_zone(zone)).astimezone(UTC) for day in dates for zone in case.zones)
    return [at for at in midnights if at > case.now]


@settings(max_examples=60, deadline=None)
@given(cases)
def test_the_next_eligible_instant_is_the_first_open_minute(case: Case) -> None:
    """Nothing between now and it is open, it is, and where there is none within the horizon that is said."""
    decision = decide_for(make_hours(case.hours), case.zones, case.now)

    found = first_minute(case, wanted=decision.verdict is not Verdict.ALLOW)

    assert (decision.verdict is Verdict.ALLOW) is opening(case)(case.now)
    assert decision.not_before == (found if decision.verdict is Verdict.DEFER else None)
    assert decision.valid_until == (
        min([found or case.now + LONG_ENOUGH, *turns_of_rules(case)]) if decision.verdict is Verdict.ALLOW else None
    )
    assert decision.verdict is not Verdict.SUPPRESS or decision.reason is Reason.NO_COMMON_WINDOW


@settings(max_examples=100, deadline=None)
@given(cases)
def test_what_was_deferred_is_allowed_when_its_time_comes(case: Case) -> None:
    document = make_hours(case.hours)
    decision = decide_for(document, case.zones, case.now)

    later = decide_for(document, case.zones, decision.not_before or case.now)

    assert later.verdict is (Verdict.SUPPRESS if decision.verdict is Verdict.SUPPRESS else Verdict.ALLOW)


SATURDAY = {"days": ["sat"], "start": "00:00", "end": "24:00"}
MOST_OF_SATURDAY = {"days": ["sat"], "start": "00:00", "end": "23:30"}
SUNDAY = {"days": ["sun"], "start": "00:00", "end": "24:00"}


@pytest.mark.parametrize(
    ("windows", "now", "closes_at"),
    [
        ([SATURDAY], "2010-11-06T02:45:00Z", "2010-11-07T02:30:00Z"),
        ([MOST_OF_SATURDAY, SUNDAY], "2010-11-07T02:30:30Z", "2010-11-07T03:00:00Z"),
    ],
)
def test_a_clock_set_back_over_midnight_returns_to_a_day_that_had_ended(
    windows: list[dict[str, Any]], now: str, closes_at: str
) -> None:
    """Newfoundland did so until 2011, from Sunday 00:01 to Saturday 23:01."""
    document = make_hours([{"id": "weekend", "windows": windows}])

    decision = decide_for(document, ["America/St_Johns"], datetime.fromisoformat(now))

    assert decision.valid_until == datetime.fromisoformat(closes_at)


@pytest.mark.parametrize("zones", [(), ("Etc/Unknown",), ("America/New_York", "Etc/Unknown"), ("America",), ("../UTC",)])
def test_without_the_persons_clock_no_hour_is_a_good_one(zones: tuple[str, ...]) -> None:
    hours = [{"id": "always", "windows": [{"days": EVERY_DAY, "start": "00:00", "end": "24:00"}]}]

    decision = decide_for(make_hours(hours), zones, datetime(2026, 12, 1, 17, tzinfo=UTC))

    assert (decision.verdict, decision.reason) == (Verdict.SUPPRESS, Reason.NO_COMMON_WINDOW)


def test_zones_come_from_the_pinned_data_and_not_from_the_machine() -> None:
    """Since IANA 2026b British Columbia does not change its clocks; many machines have older files."""
    vancouver = find_zone("America/Vancouver")

    noon = datetime.combine(date(2026, 12, 1), time(12), tzinfo=vancouver)

    assert noon.utcoffset() == timedelta(hours=-7)


@settings(max_examples=100, deadline=None)
@given(cases, st.lists(st.integers(0, 6 * 24 * 60), min_size=1, max_size=12))
def test_what_was_asked_before_does_not_change_the_answer(case: Case, later: list[int]) -> None:
    """A document remembers the stretch that it looked at last, for the next person with the same clock."""
    document = make_hours(case.hours)
    instants = [case.now, *(case.now + minutes * MINUTE for minutes in later)]

    told = [decide_for(document, case.zones, at) for at in instants]

    assert told == [decide_for(make_hours(case.hours), case.zones, at) for at in instants]
