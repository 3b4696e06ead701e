"""The application did not ask for a later time."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.words import Reason


def ask(_document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Wait until the event's own earliest time."""
    if facts.not_before is None:
        return None
    return Waiting(Reason.NOT_BEFORE, facts.not_before) if facts.not_before > now else Allowed()
