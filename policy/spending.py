"""What a tenant may spend: a cap per day, and a breaker per route, country and hour. Days and hours are UTC's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from policy.limits import read_amount
from policy.reading import Node


@dataclass(frozen=True, slots=True)
class Spent:
    """What a tenant had spent on a day when a message was decided, and what this one would add."""

    day: date
    amount: Decimal
    price: Decimal

    def as_evidence(self) -> dict[str, str]:
        """Write it as plain JSON values."""
        return {"day": self.day.isoformat(), "amount": str(self.amount), "price": str(self.price)}


def day_of(instant: datetime) -> date:
    """Give the day that an instant lies in."""
    return instant.astimezone(UTC).date()


def next_day(instant: datetime) -> datetime:
    """Give the instant at which the next day begins."""
    return datetime.combine(day_of(instant) + timedelta(days=1), time(), tzinfo=UTC)


def day_began(instant: datetime) -> datetime:
    """Give the instant at which this day began."""
    return datetime.combine(day_of(instant), time(), tzinfo=UTC)


def hour_began(instant: datetime) -> datetime:
    """Give the instant at which this hour began."""
    return instant.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def read_most(node: Node, per: str) -> Decimal | None:
    """Read `{per_day: "500.00"}` or the like; None where it was left out."""
    if node.is_absent():
        return None
    most = node.fields(required=(per,))[per]
    amount = read_amount(most)
    if isinstance(most.value, str) and not amount:
        most.wrong("must be more than nothing")
    return amount
