"""Spend: what prepare counts where a version caps it, and when that stops a handoff. Postgres is the referee.

One row per tenant, route, country, hour and currency. Whoever adds to a tenant's rows holds the lock of the
tenant's own row, taken after the gates, so that two windows do not both fit under the same cap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Statement, as_json, insertion, run_together
from app.ground.ids import new_id
from models.rules import Pause
from policy.document import Document
from policy.spending import day_began, hour_began
from policy.words import Reason

LOCK_TENANTS: Final = "SELECT id FROM tenant WHERE id = ANY(%(tenants)s::uuid[]) ORDER BY id FOR NO KEY UPDATE"

# The day's sum, which decisions look at too, without a lock.
TODAY: Final = """
SELECT tenant_id, currency, sum(amount) AS amount FROM spend
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND hour >= %(day)s GROUP BY tenant_id, currency
"""

# What an operator has let pass by resuming does not trip the breaker again.
THIS_HOUR: Final = """
SELECT route_id, country, currency, amount - let_pass AS amount FROM spend
WHERE tenant_id = ANY(%(tenants)s::uuid[]) AND hour = %(hour)s
"""

ADD: Final = """
INSERT INTO spend AS s (tenant_id, hour, route_id, country, currency, amount, attempt_count, let_pass)
SELECT tenant_id, %(hour)s, route_id, country, currency, amount, attempt_count, 0
FROM json_to_recordset(%(new)s::json)
     AS n (tenant_id uuid, route_id uuid, country text, currency text, amount numeric, attempt_count int)
ORDER BY tenant_id, route_id, country, currency
ON CONFLICT (tenant_id, hour, route_id, country, currency)
DO UPDATE SET amount = s.amount + excluded.amount, attempt_count = s.attempt_count + excluded.attempt_count
"""

BEGIN_ANEW: Final = """
UPDATE spend SET let_pass = amount
WHERE tenant_id = %(tenant)s AND route_id = %(route)s AND country = %(country)s AND hour = %(hour)s
"""

ELSEWHERE: Final = "ZZ"
"""The country of numbers that belong to none; no country of ISO 3166-1 has these letters."""

TRIP_ONCE: Final = "ON CONFLICT (route_id, country) WHERE ended_at IS NULL AND cause = 'spend_breaker' DO NOTHING"


@dataclass(frozen=True, slots=True)
class Item:
    """One handoff to be paid for."""

    tenant_id: UUID
    route_id: UUID
    country: str
    amount: Decimal
    currency: str


@dataclass(slots=True)
class Spending:
    """What the tenants of a page have spent, and what the page adds to it; nothing at all where no version caps it."""

    now: datetime
    today: defaultdict[tuple[UUID, str], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    """By tenant and currency."""
    this_hour: defaultdict[tuple[UUID, str, str], Decimal] = field(default_factory=lambda: defaultdict(Decimal))
    """By route, country and currency."""
    added: list[Item] = field(default_factory=list)
    tripped: dict[tuple[UUID, str], UUID] = field(default_factory=dict)
    """Route and country -> tenant."""

    @classmethod
    def under_lock(cls, session: Session, tenants: Iterable[UUID], *, now: datetime) -> Spending:
        """Lock these tenants, whose versions cap what they spend, and read what they have spent; the gates are held."""
        spending, ids = cls(now), {"tenants": sorted(set(tenants))}
        if ids["tenants"]:
            hour, day = hour_began(now), day_began(now)
            statements: list[Statement] = [(LOCK_TENANTS, ids), (TODAY, ids | {"day": day}), (THIS_HOUR, ids | {"hour": hour})]
            _, today, this_hour = run_together(session, statements)
            spending.today.update({(row.tenant_id, row.currency): row.amount for row in today})
            spending.this_hour.update({(row.route_id, row.country, row.currency): row.amount for row in this_hour})
        return spending

    def held(self, document: Document, item: Item) -> Reason | None:
        """Say what holds a handoff: the breaker of its route and country, or the day's cap; each counts this page too."""
        breaker, cap = document.breaker_per_hour, document.spend_per_day
        where = (item.route_id, item.country)
        if where in self.tripped:
            return Reason.SPEND_BREAKER
        if breaker is not None and self.this_hour[*where, item.currency] + item.amount > breaker:
            self.tripped[where] = item.tenant_id
            return Reason.SPEND_BREAKER
        if cap is not None and self.today[item.tenant_id, item.currency] + item.amount > cap:
            return Reason.SPEND_CAP
        return None

    def add(self, item: Item) -> None:
        """Count a handoff that was admitted."""
        self.added.append(item)
        self.today[item.tenant_id, item.currency] += item.amount
        self.this_hour[item.route_id, item.country, item.currency] += item.amount

    def writing(self) -> list[Statement]:
        """Give the statements that keep what the page added, and pause what tripped."""
        statements: list[Statement] = []
        if self.added:
            statements.append((ADD, {"new": as_json(self._sums()), "hour": hour_began(self.now)}))
        if self.tripped:
            statements.append(insertion(Pause, self._pauses(), tail=TRIP_ONCE))
        return statements

    def _sums(self) -> list[dict[str, Any]]:
        sums: dict[tuple[UUID, UUID, str, str], list[Decimal]] = {}
        for item in self.added:
            sums.setdefault((item.tenant_id, item.route_id, item.country, item.currency), []).append(item.amount)
        names = ("tenant_id", "route_id", "country", "currency")
        return [
            dict(zip(names, key, strict=True)) | {"amount": str(sum(amounts)), "attempt_count": len(amounts)}
            for key, amounts in sums.items()
        ]

    def _pauses(self) -> list[dict[str, Any]]:
        return [
            {
                "id": new_id(),
                "tenant_id": tenant_id,
                "route_id": route_id,
                "lane": None,
                "category": None,
                "country": country,
                "cause": Reason.SPEND_BREAKER,
                "started_by": "daybook",
                "started_at": self.now,
                "ended_by": None,
                "ended_at": None,
            }
            for (route_id, country), tenant_id in sorted(self.tripped.items())
        ]


def let_pass(session: Session, *, tenant_id: UUID, route_id: UUID, country: str, now: datetime) -> None:
    """Begin this hour's count for the breaker anew: an operator has seen it, and resumes. The day's cap goes on counting."""
    where = {"tenant": tenant_id, "route": route_id, "country": country, "hour": hour_began(now)}
    run_together(session, [(LOCK_TENANTS, {"tenants": [tenant_id]}), (BEGIN_ANEW, where)])
