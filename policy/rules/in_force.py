"""A version is in force at this instant, and speaks of this category and channel."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from policy.applicable import next_change
from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.words import Reason

# Long enough not to spin while nobody has published a version, short enough that one who does sees
# the deferred move within a minute.
LOOK_AGAIN: Final = timedelta(seconds=60)


def ask(document: Document | None, facts: Facts, now: datetime) -> Finding:
    """Wait while no version speaks; without one nothing is allowed and nothing is dropped.

    What is allowed is asked again when the version ends, or a dated rule in it begins or ends.
    """
    if document is None:
        return Waiting(Reason.NO_POLICY, now + LOOK_AGAIN, {"document": False})
    until = document.effective_until
    in_force = document.effective_from <= now and (until is None or now < until)
    if in_force and facts.category in document.categories and facts.channel in document.channels:
        change = next_change(document, facts, now)
        return Allowed(until if change is None else change if until is None else min(until, change))
    saw = {"category": facts.category in document.categories, "channel": facts.channel in document.channels}
    return Waiting(Reason.NO_POLICY, now + LOOK_AGAIN, {"document": True, "in_force": in_force, **saw})
