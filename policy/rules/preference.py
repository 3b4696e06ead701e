"""The person wants this category, or has said nothing about it."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(_document: Document, facts: Facts, _now: datetime) -> Finding | None:
    """Refuse what the person, at last, chose not to get; at the same instant the "no" counts."""
    said = [preference for preference in facts.preferences if preference.category in {None, facts.category}]
    if not said:
        return None
    last = max(said, key=lambda preference: (preference.at, not preference.wanted, preference.id))
    saw = {"preference": last.id}
    return Allowed(saw=saw) if last.wanted else Refused(Reason.NOT_WANTED, saw)
