"""The application did not ask for a later time."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting, rfc3339_or_none
from policy.words import Reason


def ask(_document: Document, facts: Facts, now: datetime) -> Finding:
    """Wait until the event's own earliest time."""
    saw = {"not_before": rfc3339_or_none(facts.not_before)}
    if facts.not_before is not None and facts.not_before > now:
        return Waiting(Reason.NOT_BEFORE, facts.not_before, saw)
    return Allowed(saw=saw)
