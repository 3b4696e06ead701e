"""A version is in force at this instant, and speaks of this category and channel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.words import Reason

# Long enough not to spin while nobody has published a version, short enough that one who does sees
# the deferred move within a minute.
LOOK_AGAIN: Final = timedelta(seconds=60)


def ask(document: Document | None, facts: Facts, now: datetime) -> Finding:
    """Wait while no version speaks; without one nothing is allowed and nothing is dropped."""
    if document is None:
        return Waiting(Reason.NO_POLICY, now + LOOK_AGAIN, {"document": False})
    until = document.effective_until
    saw = {
        "document": True,
        "in_force": document.effective_from <= now and (until is None or now < until),
        "category": facts.category in document.categories,
        "channel": facts.channel in document.channels,
    }
    return Allowed(until, saw) if all(saw.values()) else Waiting(Reason.NO_POLICY, now + LOOK_AGAIN, saw)
