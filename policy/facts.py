"""What a decision may look at: read from the ledger by the caller, frozen, and kept as evidence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from policy.categories import Basis
from policy.findings import Json, rfc3339
from policy.spending import Spent
from policy.words import Category, Channel, NumberType


class ZoneSource(StrEnum):
    """Where the person's time zones come from, the surest first."""

    DECLARED = "declared"
    NUMBER = "number"
    COUNTRY = "country"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Suppression:
    """A row that says do not contact: in one category, in all where `category` is None, or in everything, whatever the policy."""

    id: str
    category: Category | None
    source: str
    at: datetime
    everything: bool = False

    def as_evidence(self) -> dict[str, Json]:
        """Write it as plain JSON values."""
        category = None if self.category is None else self.category.value
        told: dict[str, Json] = {"id": self.id, "category": category, "source": self.source, "at": rfc3339(self.at)}
        if self.everything:
            told["everything"] = True
        return told


@dataclass(frozen=True, slots=True)
class Consent:
    """A row that says how, when and to which words a person agreed, or that they withdrew it.

    In one category, or in all where it is None; a withdrawal is of one kind, or of every kind where that is None.
    """

    id: str
    kind: str | None
    category: Category | None
    captured_at: datetime
    expires_at: datetime | None
    wording: str | None
    withdrawn: bool = False

    def as_evidence(self) -> dict[str, Json]:
        """Write it as plain JSON values, without what is not known."""
        told: dict[str, Json] = {"id": self.id, "captured_at": rfc3339(self.captured_at)}
        if self.kind is not None:
            told["kind"] = self.kind
        if self.category is not None:
            told["category"] = self.category.value
        if self.expires_at is not None:
            told["expires_at"] = rfc3339(self.expires_at)
        if self.wording is not None:
            told["wording"] = self.wording
        if self.withdrawn:
            told["withdrawn"] = True
        return told


@dataclass(frozen=True, slots=True)
class Preference:
    """A row that says whether a person wants a category, or any at all where it is None."""

    id: str
    category: Category | None
    wanted: bool
    at: datetime

    def as_evidence(self) -> dict[str, Json]:
        """Write it as plain JSON values."""
        category = None if self.category is None else self.category.value
        return {"id": self.id, "category": category, "wanted": self.wanted, "at": rfc3339(self.at)}


@dataclass(frozen=True, slots=True)
class Contacted:
    """An earlier handoff to the same person: in which category, and whether about the same subject."""

    at: datetime
    category: Category
    same_subject: bool

    def as_evidence(self) -> dict[str, Json]:
        """Write it as plain JSON values."""
        return {"at": rfc3339(self.at), "category": self.category.value, "same_subject": self.same_subject}


@dataclass(frozen=True, slots=True)
class Facts:
    """One intent and its person at a moment: no address, no name, no body.

    `zones` is every zone the person may be in; `expires_at` is the event's own end, None where it
    names none; `cooldown_until` and `cooldown_holder` name another business key's slot for this
    person and category, None when it is free or ours; `subdivisions` are the parts of the country
    that the number's area code speaks for; `basis` is set where consents and preferences are those
    of the acceptance; `recipient_version` names the version of the stored recipient that declared
    the zone, None where the event itself did, or nobody; `confirms` is the suppression that this very
    message tells the person of, in reply to a text of theirs.
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
    consents: tuple[Consent, ...] = ()
    preferences: tuple[Preference, ...] = ()
    contacted: tuple[Contacted, ...] = ()
    number_type: NumberType | None = None
    subdivisions: tuple[str, ...] = ()
    segment_count: int | None = None
    sender_type: str | None = None
    basis: Basis | None = None
    spent: Spent | None = None
    """Only where this message would be over the day's cap: else every decision would be news."""
    recipient_version: int | None = None
    confirms: str | None = None

    def as_evidence(self) -> dict[str, Json]:
        """Write the facts as plain JSON values, equal to themselves after a round trip through jsonb.

        What is not there is not written: `policy.replay.facts_of` reads it back as not there.
        """
        told: dict[str, Json] = {
            "channel": self.channel.value,
            "category": self.category.value,
            "zones": list(self.zones),
            "zone_source": self.zone_source.value,
            "accepted_at": rfc3339(self.accepted_at),
            "tzdata_version": self.tzdata_version,
            "phonenumbers_version": self.phonenumbers_version,
        }
        if not self.route_available:
            told["route_available"] = False
        if self.subdivisions:
            told["subdivisions"] = list(self.subdivisions)
        for name, written in _IF_KNOWN:
            value = getattr(self, name)
            if value:
                told[name] = written(value)
        return told


def _rows(held: Sequence[Suppression | Consent | Preference | Contacted]) -> Json:
    return [row.as_evidence() for row in held]


_IF_KNOWN: Final[Sequence[tuple[str, Callable[[Any], Json]]]] = (
    ("country", str),
    ("expires_at", rfc3339),
    ("not_before", rfc3339),
    ("cooldown_until", rfc3339),
    ("cooldown_holder", str),
    ("number_type", str),
    ("segment_count", int),
    ("sender_type", str),
    ("basis", str),
    ("recipient_version", int),
    ("confirms", str),
    ("suppressions", _rows),
    ("consents", _rows),
    ("preferences", _rows),
    ("contacted", _rows),
    ("spent", Spent.as_evidence),
)
