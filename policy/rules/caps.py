"""The person has not been contacted as often as is enough for now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from policy.applicable import in_force
from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Waiting
from policy.limits import Cap, Per
from policy.words import Reason


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Wait until enough of the earlier handoffs have left the window of every cap; windows roll, no calendar counts."""
    caps = list(_caps(document, facts, now))
    if not caps:
        return None
    waits = [(free_at, rule, cap) for rule, cap in caps if (free_at := _free_at(cap, facts)) is not None and free_at > now]
    if not waits:
        return Allowed()
    free_at, rule, cap = max(waits, key=lambda wait: wait[0])
    window = int(cap.window.total_seconds())
    return Waiting(Reason.FREQUENCY_CAP, free_at, {"rule": rule, "limit": cap.limit, "per": cap.per.value, "seconds": window})


def _caps(document: Document, facts: Facts, now: datetime) -> Iterator[tuple[str, Cap]]:
    for cap in document.categories[facts.category].caps:
        yield facts.category.value, cap
    for rule in in_force(document, facts, now):
        for cap in rule.caps:
            yield rule.id, cap


def _free_at(cap: Cap, facts: Facts) -> datetime | None:
    """Find when the newest handoffs, one more than the cap leaves room for, begin to fall out of the window."""
    counted = sorted(each.at for each in facts.contacted if _counts(cap.per, each.category == facts.category, each.same_subject))
    return counted[-cap.limit] + cap.window if len(counted) >= cap.limit else None


def _counts(per: Per, same_category: bool, same_subject: bool) -> bool:  # noqa: FBT001 - two facts about one handoff
    match per:
        case Per.SUBJECT:
            return same_category and same_subject
        case Per.CATEGORY:
            return same_category
        case Per.PERSON:
            return True
