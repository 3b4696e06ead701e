"""Some configured route serves this channel and country."""

from __future__ import annotations

from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(_document: Document, facts: Facts, _now: datetime) -> Finding:
    """Refuse when there is no way to the person; a route that is only stopped counts as one."""
    return Allowed() if facts.route_available else Refused(Reason.NO_ROUTE)
