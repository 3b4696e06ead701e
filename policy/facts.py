"""What a decision may look at: read from the ledger by the caller, frozen, and kept as evidence."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from policy.findings import Json, rfc3339, rfc3339_or_none
from policy.words import Category, Channel


class ZoneSource(StrEnum):
    """Where the person's time zones come from, the surest first."""

    DECLARED = "declared"
    NUMBER = "number"
    COUNTRY = "country"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Suppression:
    """A row that says do not contact: in one category, or in all where `category` is None."""

    id: str
    category: Category | None
    source: str
    at: datetime

    def as_evidence(self) -> dict[str, Json]:
        """Write it as plain JSON values."""
        category = None if self.category is None else self.category.value
        return {"id": self.id, "category": category, "source": self.source, "at": rfc3339(self.at)}


@dataclass(frozen=True, slots=True)
class Facts:
    """One intent and its person at a moment: no address, no name, no body.

    `zones` is every zone the person may be in; `expires_at` is the event's own end, None where it
    names none; `cooldown_until` and `cooldown_holder` name another business key's slot for this
    person and category, None when it is free or ours.
    """

    channel: Channel
    category: Category
    country: str | None
    zones: tuple[str, ...]
    zone_source: ZoneSource
    accepted_at: datetime
    expires_at: datetime | None
    route_available: bool
    tzdata_version: str
    phonenumbers_version: str
    suppressions: tuple[Suppression, ...] = ()
    not_before: datetime | None = None
    cooldown_until: datetime | None = None
    cooldown_holder: str | None = None

    def as_evidence(self) -> dict[str, Json]:
        """Write the facts as plain JSON values, equal to themselves after a round trip through jsonb."""
        return {
            "channel": self.channel.value,
            "category": self.category.value,
            "country": self.country,
            "zones": list(self.zones),
            "zone_source": self.zone_source.value,
            "suppressions": [row.as_evidence() for row in sorted(self.suppressions, key=lambda row: row.id)],
            "accepted_at": rfc3339(self.accepted_at),
            "expires_at": rfc3339_or_none(self.expires_at),
            "not_before": rfc3339_or_none(self.not_before),
            "cooldown_until": rfc3339_or_none(self.cooldown_until),
            "cooldown_holder": self.cooldown_holder,
            "route_available": self.route_available,
            "tzdata_version": self.tzdata_version,
            "phonenumbers_version": self.phonenumbers_version,
        }
