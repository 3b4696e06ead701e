"""The text is not longer, and not dearer, than one message may be."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from policy.applicable import in_force, price_of
from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.limits import MessageCap
from policy.words import Reason


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Refuse over any cap per message, the category's own and those of the country."""
    if facts.segment_count is None:
        return None
    caps = list(_caps(document, facts, now))
    price = price_of(document, facts, now) if caps else None
    for rule, cap in caps:
        if cap.max_segments is not None and facts.segment_count > cap.max_segments:
            return Refused(Reason.TOO_MANY_SEGMENTS, {"rule": rule, "max_segments": cap.max_segments})
        if cap.max_price is not None and price is not None and price.amount > cap.max_price:
            return Refused(Reason.TOO_EXPENSIVE, {"rule": rule, "price": str(price), "max_price": str(cap.max_price)})
    return Allowed() if caps else None


def _caps(document: Document, facts: Facts, now: datetime) -> Iterator[tuple[str, MessageCap]]:
    own = document.categories[facts.category].message_cap
    if own is not None:
        yield facts.category.value, own
    for rule in in_force(document, facts, now):
        if rule.message_cap is not None:
            yield rule.id, rule.message_cap
