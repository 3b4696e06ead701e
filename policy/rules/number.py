"""The number is of a kind that the policy lets us contact."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(document: Document, facts: Facts, _now: datetime) -> Finding | None:
    """Refuse a kind that is not listed; what was accepted before kinds were kept is not judged."""
    if document.number_types is None or facts.number_type is None:
        return None
    if facts.number_type in document.number_types:
        return Allowed()
    return Refused(Reason.NUMBER_TYPE_BLOCKED, {"allowed": sorted(document.number_types)})
