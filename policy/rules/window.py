"""It is a good hour in every time zone the person may be in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from policy.applicable import almanac_of
from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Json, Refused, Waiting, rfc3339
from policy.hours import Block
from policy.words import Reason
from policy.zones import find_zone

# The reason given is the gravest of all that close an instant (policy.md, section 3.3).
GRAVITY = (Reason.BANNED_DATE, Reason.BANNED_WEEKDAY, Reason.OUTSIDE_WINDOW)


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Wait for the first instant that all hours allow in all zones; refuse when there is none in sight."""
    hours, almanac = almanac_of(document, facts)
    if not hours:
        return None
    saw: dict[str, Json] = {"hours": [rule.id for rule in hours]}
    if almanac is None:
        # Without the person's clock no hour can be called a good one.
        return Refused(Reason.NO_COMMON_WINDOW, saw | {"unknown_zones": [z for z in facts.zones if find_zone(z) is None]})
    stretch = almanac.look(now)
    if not stretch.blocks:
        return Allowed(stretch.turns_at, saw if stretch.turns_at is None else saw | {"until": rfc3339(stretch.turns_at)})
    saw["blocking"] = _words_of(stretch.blocks)
    if stretch.turns_at is None:
        return Refused(Reason.NO_COMMON_WINDOW, saw)
    reasons = {block.reason for block in stretch.blocks}
    return Waiting(next(reason for reason in GRAVITY if reason in reasons), stretch.turns_at, saw)


def _words_of(closed: Sequence[Block]) -> list[Json]:
    return [{"rule": block.hours, "zone": block.zone, "reason": block.reason.value} for block in closed]
