"""The person has not asked to be left alone, and nobody has found that they must be."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(_document: Document, facts: Facts, _now: datetime) -> Finding:
    """Refuse when a suppression covers the category; one without a category covers them all."""
    covering = sorted(row.id for row in facts.suppressions if row.category in {None, facts.category})
    saw = {"covering": covering}
    return Refused(Reason.OPTED_OUT, saw) if covering else Allowed(saw=saw)
