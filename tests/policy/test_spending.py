"""What a tenant may spend: read strictly, in one currency, and waited for until the next day of UTC."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pytest

from policy.decide import decide
from policy.document import InvalidDocument, parse
from policy.facts import Facts
from policy.fixtures import read_fixture
from policy.replay import facts_of
from policy.spending import Spent, day_began, hour_began, next_day
from policy.words import Reason, Verdict
from tests.making import sample

NOON: Final = datetime(2026, 12, 1, 17, 0, tzinfo=UTC)
TODAY: Final = date(2026, 12, 1)
CAPS: Final = {
    "prices": {"currency": "USD", "sms": {"US": "0.0079"}},
    "spend": {"per_day": "500.00"},
    "breaker": {"per_hour": "100.00"},
    "rate": {"per_second": 20, "burst": 40},
}


def facts(**changes: Any) -> Facts:
    case = {
        "name": "n",
        "now": NOON.isoformat(),
        "facts": {"category": "transactional"} | changes,
        "expect": {"verdict": "allow"},
    }
    return read_fixture({"policy": "p", "sha256": "s", "cases": [case]}).cases[0].facts


def spent(amount: str, *, price: str = "0.0079", day: date = TODAY) -> dict[str, str]:
    return Spent(day, Decimal(amount), Decimal(price)).as_evidence()


def test_caps_rates_and_breakers_are_read() -> None:
    document = parse(sample() | CAPS)

    assert (document.spend_per_day, document.breaker_per_hour) == (Decimal("500.00"), Decimal("100.00"))
    assert document.rate is not None
    assert (document.rate.per_second, document.rate.burst, document.currency, document.caps_spend) == (20, 40, "USD", True)
    assert not parse(sample()).caps_spend


@pytest.mark.parametrize(
    ("wrong", "path"),
    [
        ({"spend": {"per_day": 500}}, "spend.per_day"),
        ({"spend": {"per_day": "0"}}, "spend.per_day"),
        ({"spend": {"per_hour": "5"}}, "spend.per_hour"),
        ({"breaker": {"per_day": "5"}}, "breaker.per_day"),
        ({"breaker": {"per_hour": "-5"}}, "breaker.per_hour"),
        ({"rate": {"per_second": 0, "burst": 1}}, "rate.per_second"),
        ({"rate": {"per_second": 5}}, "rate.burst"),
        ({"prices": None}, "prices"),
    ],
    ids=str,
)
def test_a_mistake_in_them_is_named_with_its_place(wrong: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidDocument) as refused:
        parse(sample() | CAPS | wrong)

    assert path in {problem.path for problem in refused.value.problems}


@pytest.mark.parametrize(("amount", "waits"), [("499.9921", False), ("499.9922", True), ("700", True)])
def test_what_would_be_over_the_cap_waits_for_the_next_day(amount: str, waits: bool) -> None:  # noqa: FBT001 - a table
    decision = decide(parse(sample() | CAPS), facts(spent=spent(amount)), now=NOON)

    assert (decision.reason is Reason.SPEND_CAP) is waits
    assert (decision.not_before == datetime(2026, 12, 2, tzinfo=UTC)) is waits


def test_what_ends_before_the_next_day_is_not_kept_waiting_for_it() -> None:
    ends = (NOON + timedelta(hours=2)).isoformat()

    decision = decide(parse(sample() | CAPS), facts(spent=spent("500"), expires_at=ends), now=NOON)

    assert (decision.verdict, decision.reason) == (Verdict.SUPPRESS, Reason.WOULD_EXPIRE)


def test_a_day_that_is_over_caps_nothing_any_more() -> None:
    yesterday = spent("700", day=TODAY - timedelta(days=1))

    assert decide(parse(sample() | CAPS), facts(spent=yesterday), now=NOON).verdict is Verdict.ALLOW


def test_evidence_of_it_is_read_back_as_it_was() -> None:
    seen = facts(spent=spent("499.9922"))

    assert facts_of({"facts": seen.as_evidence()}) == seen


def test_days_and_hours_are_those_of_utc() -> None:
    late = datetime(2026, 12, 1, 23, 30, tzinfo=UTC).astimezone()

    assert next_day(late) == datetime(2026, 12, 2, tzinfo=UTC)
    assert (day_began(late), hour_began(late)) == (datetime(2026, 12, 1, tzinfo=UTC), datetime(2026, 12, 1, 23, tzinfo=UTC))
