"""The route's sender is of a kind, and registered in a way, that the country asks for."""

from __future__ import annotations

from datetime import datetime

from policy.applicable import in_force
from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Refuse a sender that some rule does not list, and one of which nobody has said what it is."""
    asking = [rule for rule in in_force(document, facts, now) if rule.senders]
    if not asking:
        return None
    objecting = next((rule for rule in asking if facts.sender_type not in rule.senders), None)
    if objecting is None:
        return Allowed()
    return Refused(Reason.SENDER_NOT_ALLOWED, {"rule": objecting.id, "allowed": sorted(objecting.senders)})
