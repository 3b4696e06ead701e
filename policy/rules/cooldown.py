"""Nobody else's message has this person's slot in the category."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.words import Reason


def ask(_document: Document, facts: Facts, now: datetime) -> Finding:
    """Wait until another business key's slot is free, however long this version would have made it.

    The gate holds by the same comparison; were this one softer, the two would send a row to and fro.
    """
    until = facts.cooldown_until
    return Waiting(Reason.COOLDOWN, until) if until is not None and until > now else Allowed()
