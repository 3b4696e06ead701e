"""It is a good hour in every time zone the person may be in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Json, Refused, Waiting
from policy.hours import Block, blocks, next_closed, next_open
from policy.words import Reason
from policy.zones import find_zone

# The reason given is the gravest of all that close an instant (policy.md, section 3.3).
GRAVITY = (Reason.BANNED_DATE, Reason.BANNED_WEEKDAY, Reason.OUTSIDE_WINDOW)


def ask(document: Document, facts: Facts, now: datetime) -> Finding:
    """Wait for the first instant that all hours allow in all zones; refuse when there is none in sight."""
    hours = document.categories[facts.category].hours
    if not hours:
        return Allowed(saw={"hours": []})
    found = {name: find_zone(name) for name in facts.zones}
    zones = [zone for zone in found.values() if zone is not None]
    saw: dict[str, Json] = {"hours": [rule.id for rule in hours], "zones": list(found)}
    if not zones or len(zones) < len(found):
        # Without the person's clock no hour can be called a good one.
        return Refused(Reason.NO_COMMON_WINDOW, saw | {"unknown_zones": [name for name in found if found[name] is None]})
    closed = blocks(hours, zones, now)
    saw["blocking"] = _words_of(closed)
    if not closed:
        return Allowed(next_closed(hours, zones, now), saw)
    opening = next_open(hours, zones, now)
    if opening is None:
        return Refused(Reason.NO_COMMON_WINDOW, saw)
    reasons = {block.reason for block in closed}
    return Waiting(next(reason for reason in GRAVITY if reason in reasons), opening, saw)


def _words_of(closed: Sequence[Block]) -> list[Json]:
    return [{"rule": block.hours, "zone": block.zone, "reason": block.reason.value} for block in closed]
