"""The person's country is one the policy lets us contact."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(document: Document, facts: Facts, _now: datetime) -> Finding:
    """Refuse a blocked country, one that is not allowed, and one that nobody knows."""
    country, allowed = facts.country, document.countries_allowed
    blocked = country in document.countries_blocked
    if country is None or blocked or not (allowed == "all" or country in allowed):
        return Refused(Reason.COUNTRY_BLOCKED, {"blocked": blocked})
    return Allowed()
