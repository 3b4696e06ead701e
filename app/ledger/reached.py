"""Where one event reaches its person: what the event names counts for it alone, what it leaves out is what is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from app.ledger.request import NewEvent, Problem
from app.people.contacts import InvalidNumber, Number, read_number
from app.people.persons import NOBODY, Addressee, Contacted, Persons
from policy.words import Channel


@dataclass(frozen=True, slots=True)
class Reached:
    """Where, when and in which language one event reaches its person."""

    number: Number = field(repr=False)
    contact: Contacted | None
    """The stored one; None where the event names the number."""
    time_zone: str | None
    recipient_version: int | None
    """Of the stored recipient that the time zone is of; None where the event names the zone, or nobody does."""
    locale: str | None


def addressee(request: NewEvent) -> Addressee:
    """Name whom a request is for."""
    return Addressee(request.recipient_ref, Channel.SMS, request.number)


def left_open(requests: Iterable[NewEvent]) -> set[str]:
    """Name the recipients of whom some request leaves something to what is stored."""
    return {r.recipient_ref for r in requests if r.number is None or r.time_zone is None or r.locale is None}


def reach(persons: Persons, request: NewEvent) -> Reached | Problem:
    """Find where a request reaches its person, or say why it cannot; nothing is laid out to be written yet."""
    ref, number, contact = request.recipient_ref, request.number, None
    if ref in persons.erased:
        return Problem("recipient_erased", "this recipient was erased", "/recipient/ref")
    if number is None:
        contact = persons.stored.get((ref, Channel.SMS))
        if contact is None:
            return Problem("no_address", "is needed: no address is stored for this recipient", "/recipient/sms")
        try:
            number = read_number(persons.address(ref, Channel.SMS))
        except InvalidNumber as error:  # numbering plans change
            return Problem("invalid_number", f"the stored one {error}", "/recipient/sms")
    described = persons.described.get(ref, NOBODY)
    is_stored = request.time_zone is None and described.time_zone is not None
    return Reached(
        number=number,
        contact=contact,
        time_zone=described.time_zone if is_stored else request.time_zone,
        recipient_version=described.version if is_stored else None,
        locale=request.locale or described.locale,
    )
