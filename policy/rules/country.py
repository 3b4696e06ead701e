"""The person's country is one the policy lets us contact."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(document: Document, facts: Facts, _now: datetime) -> Finding:
    """Refuse a blocked country, one that is not allowed, and one that nobody knows."""
    allowed = document.countries_allowed
    saw = {
        "country": facts.country,
        "blocked": facts.country in document.countries_blocked,
        "allowed": allowed == "all" or facts.country in allowed,
    }
    if facts.country is None or saw["blocked"] or not saw["allowed"]:
        return Refused(Reason.COUNTRY_BLOCKED, saw)
    return Allowed(saw=saw)
