"""Where one event reaches its person: what the event names counts for it alone, what it leaves out is what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from app.ground.keys import KeyedHash
from app.ledger.request import NewEvent, Problem
from app.people.contacts import InvalidNumber, Number, read_number
from app.people.vault import VaultKey
from policy.words import Channel


@dataclass(frozen=True, slots=True)
class Reached:
    """Where, when and in which language one event reaches its person."""

    number: Number = field(repr=False)
    contact: tuple[UUID, KeyedHash] | None
    """The stored contact of that number; None where the event names the number."""
    time_zone: str | None
    recipient_version: int | None
    """Of the stored recipient that the time zone is of; None where the event names the zone, or nobody does."""
    locale: str | None


def left_open(requests: Iterable[NewEvent]) -> list[str]:
    """Name the recipients of whom some request leaves something to what is stored."""
    return sorted({r.recipient_ref for r in requests if r.number is None or r.time_zone is None or r.locale is None})


def reach(request: NewEvent, stored: Sequence[Any], keys: Mapping[str, VaultKey]) -> Reached | Problem:
    """Complete what a request says of its recipient by the rows of `persons.STORED` about them."""
    described = stored[0] if stored else None
    number, contact = request.number, None
    for row in stored if number is None else ():
        if row.channel == Channel.SMS:
            try:
                number = read_number(keys[request.recipient_ref].open(row.sealed_address))
            except InvalidNumber as error:  # numbering plans change
                return Problem("invalid_number", f"the stored one {error}", "/recipient/sms")
            contact = row.id, KeyedHash(row.hash_key_id, bytes(row.address_hash))
    if number is None:
        return Problem("no_address", "is needed: no address is stored for this recipient", "/recipient/sms")
    is_stored = request.time_zone is None and described is not None and described.time_zone is not None
    return Reached(
        number=number,
        contact=contact,
        time_zone=described.time_zone if described is not None and is_stored else request.time_zone,
        recipient_version=described.version if described is not None and is_stored else None,
        locale=request.locale or (described.locale if described is not None else None),
    )
