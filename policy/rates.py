"""How fast: units per second with a burst, and what bulk must leave for what is urgent."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from policy.reading import Node
from policy.words import Lane

RESERVED: Final = 5
"""Bulk leaves one part in so many of a burst alone."""


class CountedIn(StrEnum):
    """What a route's rate counts: carriers limit either."""

    MESSAGES = "messages"
    SEGMENTS = "segments"


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second for as long as one likes, and `burst` at once after a rest."""

    per_second: int
    burst: int

    def reserve(self, lane: Lane | None) -> int:
        """Say how many tokens must be left when a lane has taken its own: a burst of one has no part to spare."""
        if lane is not Lane.BULK:
            return 0
        return min(self.burst - 1, -(-self.burst // RESERVED))


def read_rate(node: Node) -> Rate | None:
    """Read a tenant's own rate over all of its routes; None where it was left out."""
    if node.is_absent():
        return None
    fields = node.fields(required=("per_second", "burst"))
    return Rate(fields["per_second"].whole(at_least=1), fields["burst"].whole(at_least=1))
