"""The message still matters: neither the event's own end nor the category's maximum age has passed."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused, rfc3339
from policy.words import Reason


def ends_at(document: Document, facts: Facts) -> datetime:
    """Find the instant from which on the message comes too late: the earlier of the two ends."""
    oldest = facts.accepted_at + document.categories[facts.category].max_age
    return oldest if facts.expires_at is None else min(facts.expires_at, oldest)


def ask(document: Document, facts: Facts, now: datetime) -> Finding:
    """Refuse from the end on."""
    end = ends_at(document, facts)
    return Allowed(end) if now < end else Refused(Reason.EXPIRED, {"ends_at": rfc3339(end)})
