"""Persons: find or make the vault keys and contacts of many people at once, so that what they said hangs on their address."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from psycopg import errors
from sqlalchemy.orm import Session

from app.ground.db import Raced, Rows, Statement, insertion, run_together
from app.ground.ids import new_id
from app.people.contacts import Number, address_hash
from app.people.vault import VaultKey, new_vault_key, open_vault_key
from models.people import Contact, PersonKey

PERSON_KEYS = """
SELECT id, name, wrapped_key FROM person_key
WHERE tenant_id = %(tenant)s AND kind = 'person' AND name = ANY(%(refs)s::text[])
"""

CONTACTS = """
SELECT id, recipient_ref, channel, address_hash, hash_key_id FROM contact
WHERE tenant_id = %(tenant)s AND (recipient_ref, channel, address_hash) IN (
    SELECT * FROM unnest(%(contact_refs)s::text[], %(channels)s::text[], %(hashes)s::bytea[])
)
"""

# How each is described now, a row per channel, or one without. A version that is being written is not waited for: its
# unique key settles who was first.
DESCRIBED = """
SELECT r.ref, r.version, r.time_zone, r.locale, c.channel, c.id, c.address_hash, c.hash_key_id, c.sealed_address
FROM (SELECT DISTINCT ON (ref) ref, version, contacts, time_zone, locale FROM recipient
      WHERE tenant_id = %(tenant)s AND ref = ANY(%(refs)s::text[]) ORDER BY ref, version DESC) r
LEFT JOIN LATERAL jsonb_each_text(r.contacts) AS e (channel, contact_id) ON true
LEFT JOIN contact c ON c.id = e.contact_id::uuid
"""

# Where each is reached now.
STORED = f"SELECT * FROM ({DESCRIBED}) d WHERE id IS NOT NULL"  # noqa: S608 - names of our own


class NotKept(StrEnum):
    """Why something told of a person was not written down."""

    NO_ADDRESS = "no_address"
    ERASED = "erased"
    IN_THE_FUTURE = "in_the_future"
    ENDED_BEFORE = "ended_before"
    NOTHING_STANDS = "nothing_stands"


@dataclass(frozen=True, slots=True)
class Addressee:
    """Whom something is about: a person, on one channel."""

    ref: str
    channel: str
    number: Number | None = field(default=None, repr=False)
    """None: where the recipient is reached now."""


@dataclass(frozen=True, slots=True)
class Contacted:
    """The contact that something hangs on."""

    contact_id: UUID
    address_hash: bytes = field(repr=False)
    hash_key_id: str

    def columns(self) -> dict[str, object]:
        """Give it as the columns of a row that hangs on it."""
        return {"contact_id": self.contact_id, "address_hash": self.address_hash, "hash_key_id": self.hash_key_id}


@dataclass(frozen=True, slots=True)
class Described:
    """What is stored of a person beside addresses, and in which version."""

    version: int
    time_zone: str | None = None
    locale: str | None = None


NOBODY: Final = Described(version=0)
"""Who is not described at all."""


@dataclass(slots=True)
class Persons:
    """The people of a page: what is known of them, and what has to be written so that they are."""

    tenant_id: UUID
    now: datetime
    keys: dict[str, VaultKey]
    erased: frozenset[str]
    contacts: dict[tuple[str, str, bytes], Contacted]
    stored: dict[tuple[str, str], Contacted]
    sealed: dict[tuple[str, str], bytes]
    described: dict[str, Described]
    _keys: list[dict[str, Any]] = field(default_factory=list)
    _contacts: list[dict[str, Any]] = field(default_factory=list)

    def reach(self, addressee: Addressee) -> Contacted | NotKept:
        """Find or make the contact of an addressee."""
        if addressee.ref in self.erased:
            return NotKept.ERASED
        if addressee.number is None:
            return self.stored.get((addressee.ref, addressee.channel), NotKept.NO_ADDRESS)
        return self.contact(addressee.ref, addressee.channel, addressee.number)

    def know(self, ref: str) -> VaultKey:
        """Find or make a person's vault key."""
        key = self.keys.get(ref)
        if key is None:
            key, wrapped = new_vault_key(new_id())
            self.keys[ref] = key
            row = {"id": key.id, "tenant_id": self.tenant_id, "kind": "person", "name": ref, "wrapped_key": wrapped}
            self._keys.append(row | {"created_at": self.now, "destroyed_at": None})
        return key

    def address(self, ref: str, channel: str) -> str:
        """Open the address where a person is reached now."""
        opened: str = self.keys[ref].open(self.sealed[ref, channel])
        return opened

    def contact(self, ref: str, channel: str, number: Number) -> Contacted:
        """Find or make the contact of a number."""
        address = address_hash(channel, number.e164)
        name = (ref, channel, address.digest)
        found = self.contacts.get(name)
        if found is None:
            key = self.know(ref)
            found = self.contacts[name] = Contacted(new_id(), address.digest, address.key_id)
            row = {
                "id": found.contact_id,
                "tenant_id": self.tenant_id,
                "recipient_ref": ref,
                "channel": channel,
                "address_hash": address.digest,
                "hash_key_id": address.key_id,
                "sealed_address": key.seal(number.e164),
                "person_key_id": key.id,
                "country": number.country,
                "zones": list(number.zones),
                "created_at": self.now,
            }
            self._contacts.append(row)
        return found

    def statements(self) -> list[Statement]:
        """Give the INSERTs of those who were not known before."""
        written: list[Statement] = []
        if self._keys:
            written.append(insertion(PersonKey, sorted(self._keys, key=lambda row: str(row["name"]))))
        if self._contacts:
            written.append(
                insertion(Contact, sorted(self._contacts, key=lambda row: (row["recipient_ref"], row["address_hash"])))
            )
        return written


def find_persons(session: Session, addressees: Iterable[Addressee], *, tenant_id: UUID, now: datetime) -> Persons:
    """Read what is known of the people of a page, in one round trip."""
    all_of_them = list(addressees)
    reads = reads_of(all_of_them, {a.ref for a in all_of_them}, tenant_id=tenant_id)
    return persons_of(run_together(session, reads), tenant_id=tenant_id, now=now)


def reads_of(addressees: Sequence[Addressee], described: Collection[str], *, tenant_id: UUID) -> list[Statement]:
    """Give the reads that `persons_of` takes the rows of; `described` names those of whom what is stored is wanted, if any."""
    tenant = {"tenant": tenant_id}
    named = [(a.ref, a.channel, address_hash(a.channel, a.number.e164).digest) for a in addressees if a.number is not None]
    wanted = {"contact_refs": [n[0] for n in named], "channels": [n[1] for n in named], "hashes": [n[2] for n in named]}
    return [
        # Before the keys: each statement has its own snapshot, and an address that was read has its key then.
        *([(DESCRIBED, tenant | {"refs": sorted(described)})] if described else []),
        (PERSON_KEYS, tenant | {"refs": sorted({a.ref for a in addressees})}),
        (CONTACTS, tenant | wanted),
    ]


def persons_of(results: Sequence[Rows], *, tenant_id: UUID, now: datetime) -> Persons:
    """Arrange the rows of `reads_of`."""
    *first, keys, contacts = results
    described = first[0] if first else []
    return Persons(
        tenant_id=tenant_id,
        now=now,
        keys={k.name: open_vault_key(k.id, k.wrapped_key) for k in keys if k.wrapped_key is not None},
        erased=frozenset(k.name for k in keys if k.wrapped_key is None),
        contacts={(c.recipient_ref, c.channel, bytes(c.address_hash)): _contacted(c) for c in contacts},
        stored={(d.ref, d.channel): _contacted(d) for d in described if d.id is not None},
        sealed={(d.ref, d.channel): d.sealed_address for d in described if d.id is not None},
        described={d.ref: Described(d.version, d.time_zone, d.locale) for d in described},
    )


def _contacted(row: Any) -> Contacted:  # noqa: ANN401 - a row of CONTACTS or DESCRIBED
    return Contacted(row.id, bytes(row.address_hash), row.hash_key_id)


def write_down(session: Session, statements: Sequence[Statement]) -> list[list[Any]]:
    """Write a page and give the rows of each statement; Raced when another was first to know one of its people.

    Whoever loses the race for a person's key has sealed under a key that nobody keeps, and starts again.
    """
    try:
        return run_together(session, statements)
    except errors.UniqueViolation as error:
        raise Raced("another transaction wrote this person, contact or version first") from error
