"""The tenant has not spent as much as it may in a day."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.spending import day_of, next_day
from policy.words import Reason


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Wait for the next day (UTC) where this message would be over the cap of the day that was looked at."""
    cap, spent = document.spend_per_day, facts.spent
    if cap is None or spent is None:
        return None
    if day_of(now) != spent.day or spent.amount + spent.price <= cap:
        return Allowed()
    return Waiting(Reason.SPEND_CAP, next_day(now), {"per_day": str(cap)})
