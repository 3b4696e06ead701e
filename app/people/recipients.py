"""Recipients: keep how a tenant describes its people, version by version; an address itself goes to the vault only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, rows
from app.ground.errors import DaybookError
from app.ground.ids import new_id
from app.people.contacts import Number, masked
from app.people.persons import Addressee, Contacted, NotKept, find_persons, write_down
from app.people.preferences import Move, carried
from app.people.vault import open_vault_key
from models.people import Recipient
from policy.words import Channel

CURRENT = """
SELECT DISTINCT ON (ref) ref, version, contacts, time_zone, locale FROM recipient
WHERE tenant_id = %(tenant)s AND ref = ANY(%(refs)s::text[]) ORDER BY ref, version DESC
"""

READ = """
SELECT r.ref, r.version, r.contacts, r.time_zone, r.locale, r.recorded_at
FROM recipient r JOIN person_key k ON k.tenant_id = r.tenant_id AND k.kind = 'person' AND k.name = r.ref
WHERE r.tenant_id = %(tenant)s AND r.ref = %(ref)s AND k.destroyed_at IS NULL
ORDER BY r.version DESC LIMIT 1
"""

ADDRESSES = """
SELECT c.channel, c.country, c.sealed_address, c.created_at, k.id AS key_id, k.wrapped_key
FROM contact c JOIN person_key k ON k.id = c.person_key_id
WHERE c.id = ANY(%(ids)s::uuid[]) ORDER BY c.channel
"""

KNOWN = """
SELECT 1 FROM person_key WHERE tenant_id = %(tenant)s AND kind = 'person' AND name = %(ref)s AND destroyed_at IS NULL
"""


class NoSuchRecipient(DaybookError):
    """The tenant has no such recipient, or this person was erased."""


@dataclass(frozen=True, slots=True)
class NewRecipient:
    """A person as a tenant describes them, all of it."""

    ref: str
    number: Number | None = field(default=None, repr=False)
    time_zone: str | None = None
    locale: str | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """Which version stands now, and whether this wrote it."""

    ref: str
    version: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class AddressView:
    """An address as it may be shown: enough to recognise, too little to call."""

    channel: str
    address: str
    country: str | None
    since: datetime


@dataclass(frozen=True, slots=True)
class RecipientView:
    """A person as they stand."""

    ref: str
    version: int
    addresses: tuple[AddressView, ...]
    time_zone: str | None
    locale: str | None
    changed_at: datetime


def put_recipient(session: Session, new: NewRecipient, *, tenant_id: UUID, actor: str, now: datetime) -> Put | NotKept:
    """Keep how one person is described from now on."""
    return put_recipients(session, [new], tenant_id=tenant_id, actor=actor, now=now)[0]


def put_recipients(
    session: Session, new: Sequence[NewRecipient], *, tenant_id: UUID, actor: str, now: datetime
) -> list[Put | NotKept]:
    """Keep how people are described from now on, in order; what says nothing new writes nothing.

    Two that change one person at once: the unique version lets one through, the other is Raced.
    """
    persons = find_persons(session, [Addressee(each.ref, Channel.SMS, each.number) for each in new], tenant_id=tenant_id, now=now)
    found = rows(session, CURRENT, tenant=tenant_id, refs=sorted({each.ref for each in new}))
    current: dict[str, dict[str, Any]] = {row.ref: row._asdict() for row in found}
    fresh: list[dict[str, Any]] = []
    moved: dict[str, Move] = {}
    results: list[Put | NotKept] = []
    for each in new:
        contact = persons.reach(Addressee(each.ref, Channel.SMS, each.number)) if each.number else None
        if each.ref in persons.erased or isinstance(contact, NotKept):
            results.append(NotKept.ERASED)
            continue
        persons.know(each.ref)
        row = _described(each, contact, current.get(each.ref))
        is_new = row is not current.get(each.ref)
        if is_new:
            current[each.ref] = row
            fresh.append({"id": new_id(), "tenant_id": tenant_id} | row | {"recorded_at": now, "recorded_by": actor})
            before = persons.stored.get((each.ref, Channel.SMS))
            if contact is not None and (before is None or before.contact_id != contact.contact_id):
                moved[each.ref] = Move(each.ref, Channel.SMS, contact)
        results.append(Put(each.ref, row["version"], is_new))
    if fresh:
        along = carried(session, [moved[ref] for ref in sorted(moved)], tenant_id=tenant_id, actor=actor, now=now)
        insert = insertion(Recipient, sorted(fresh, key=lambda row: (row["ref"], row["version"])))
        write_down(session, [*persons.statements(), *along, insert])
    return results


def _described(new: NewRecipient, contact: Contacted | None, before: dict[str, Any] | None) -> dict[str, Any]:
    """Lay out the next version, or give the one before where nothing differs."""
    said = {
        "contacts": {Channel.SMS.value: str(contact.contact_id)} if contact else {},
        "time_zone": new.time_zone,
        "locale": new.locale,
    }
    if before is not None and all(before[name] == value for name, value in said.items()):
        return before
    return {"ref": new.ref, "version": before["version"] + 1 if before else 1, **said}


def read_recipient(session: Session, *, tenant_id: UUID, ref: str) -> RecipientView:
    """Read how a person is described, addresses masked; NoSuchRecipient when nobody is, or they were erased."""
    for row in rows(session, READ, tenant=tenant_id, ref=ref):
        return RecipientView(row.ref, row.version, _addresses(session, row.contacts), row.time_zone, row.locale, row.recorded_at)
    raise NoSuchRecipient("no such recipient")


def get_known(session: Session, *, tenant_id: UUID, ref: str) -> None:
    """See that a person is known, be it from an event alone; NoSuchRecipient when not, or when they were erased."""
    if not rows(session, KNOWN, tenant=tenant_id, ref=ref):
        raise NoSuchRecipient("no such recipient")


def _addresses(session: Session, contacts: Mapping[str, str]) -> tuple[AddressView, ...]:
    found = rows(session, ADDRESSES, ids=sorted(contacts.values()))
    return tuple(
        AddressView(
            row.channel,
            masked(open_vault_key(row.key_id, row.wrapped_key).open(row.sealed_address)),
            row.country,
            row.created_at,
        )
        for row in found
    )
