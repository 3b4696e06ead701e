"""Suppressions that are told, by a person, an application or a list: each act is kept once, under the gate of whom it is about.

An act counts from when it is written down, however long ago it was said. What a list tells is kept with the time
that it names, also beside what stands already, and a lift in a list takes back no more than lists told before: a
list comes late and tells old news, and cannot know what was heard here since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, rows, run_together
from app.ground.ids import new_id
from app.ground.keys import lasting_hash
from app.people.consents import AHEAD
from app.people.contacts import Number, address_hash
from app.people.mark import marks
from app.people.persons import Addressee, Contacted, NotKept, Persons, find_persons, write_down
from models.people import Suppression

# Everything said of these addresses, in the order in which it was written down.
SAID: Final = """
SELECT s.id, s.address_hash, s.channel, s.category, s.everything, s.act, s.source, coalesce(s.told_at, s.at) AS said_at,
       s.told_at IS NOT NULL AS listed, EXISTS (SELECT FROM suppression l
               WHERE l.tenant_id = s.tenant_id AND l.address_hash = s.address_hash AND l.act = 'lift' AND s.id = ANY(l.lifts)
       ) AS lifted
FROM suppression s WHERE s.tenant_id = %(tenant)s AND s.address_hash = ANY(%(hashes)s::bytea[]) ORDER BY s.id
"""

# Also of people who were erased: their address can be read no more, and is still not to be contacted.
ADDRESSES_OF: Final = """
SELECT recipient_ref, channel, address_hash FROM contact
WHERE tenant_id = %(tenant)s AND recipient_ref = ANY(%(refs)s::text[]) ORDER BY id
"""


DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Whom:
    """Whom something is about: a number, its fingerprint, or a person with every address that is known of them."""

    channel: str
    ref: str | None = None
    number: Number | None = field(default=None, repr=False)
    fingerprint: bytes | None = field(default=None, repr=False)
    """The keyed hash of an address, as `fingerprint_of` writes it."""


@dataclass(frozen=True, slots=True)
class NewSuppression:
    """One act to be kept: not to contact somebody, or that this is lifted."""

    about: Whom
    category: str | None
    everything: bool
    act: str
    source: str
    at: datetime | None
    """When it was said, of an act in a list; None: now, unless the same stands already."""
    reason: str | None


@dataclass(frozen=True, slots=True)
class Told:
    """The acts that say it, one for each address: written now, or in the books since it was told before."""

    ids: tuple[UUID, ...]
    is_new: bool


@dataclass(slots=True)
class _Act:
    """An act as it is in the books, or about to be."""

    id: UUID
    channel: str
    category: str | None
    everything: bool
    act: str
    source: str
    said_at: datetime
    listed: bool
    lifted: bool

    def says(self, new: NewSuppression) -> bool:
        """Say whether this says the same: at the same instant; of what is no list's, whether it still stands."""
        ours = (self.act, self.channel, self.category, self.everything, self.source)
        theirs = (new.act, new.about.channel, new.category, new.everything, new.source)
        stands = not self.listed and not self.lifted
        return ours == theirs and (stands if new.at is None else self.said_at == new.at)

    def is_taken_back(self, new: NewSuppression, said_at: datetime) -> bool:
        """Say whether a lift in a list takes this back."""
        covered = self.channel == new.about.channel and new.category in {None, self.category} and self.source == new.source
        return self.act == "suppress" and self.listed and not self.lifted and covered and self.said_at <= said_at


def fingerprint_of(digest: bytes) -> str:
    """Write an address's keyed hash: it names an address that is not kept in clear, for whoever holds the same hash ring."""
    return f"{_hash_key()}:{bytes(digest).hex()}"


def read_fingerprint(text: str) -> bytes | None:
    """Read what `fingerprint_of` wrote; None when it is no such text, or was made under another key."""
    key_id, _, digest = text.rpartition(":")
    return bytes.fromhex(digest) if key_id == _hash_key() and DIGEST.fullmatch(digest) else None


def record_suppressions(
    session: Session, new: Sequence[NewSuppression], *, tenant_id: UUID, cause_id: UUID, now: datetime
) -> list[Told | NotKept]:
    """Keep many acts in order, each on its own; `cause_id` is the operator action that they follow from.

    The gates of a page are locked in one order before any of it is written, so that neither prepare nor a STOP
    nor another list is waited for in a circle. Raced when another was first to know one of these people.
    """
    persons = _find_named(session, new, tenant_id=tenant_id, now=now)
    reached = _reach(session, new, persons, tenant_id=tenant_id, now=now)
    page = _Page(tenant_id, cause_id, now)
    # What is known needs neither lock nor mark: acts are never taken out of the books, and a list comes again every night.
    page.read(session, {digest for hashes in reached for digest in _of(hashes)})
    told = [page.find(each, hashes) for each, hashes in zip(new, reached, strict=True)]
    fresh = [n for n, found in enumerate(told) if found is None]
    if fresh:
        hashes = {digest for n in fresh for digest in _of(reached[n])}
        write_down(session, [*persons.statements(), *marks(hashes, tenant_id=tenant_id, now=now)])
        page.read(session, hashes)  # again, now that nobody else writes of them
        for n in fresh:
            told[n] = page.find(new[n], reached[n]) or page.keep(new[n], _of(reached[n]))
        if page.rows:
            run_together(session, [insertion(Suppression, page.rows)])
    return [found for found in told if found is not None]


def _find_named(session: Session, new: Sequence[NewSuppression], *, tenant_id: UUID, now: datetime) -> Persons:
    about = [each.about for each in new]
    named = [Addressee(a.ref, a.channel, a.number) for a in about if a.ref is not None and a.number is not None]
    return find_persons(session, named, tenant_id=tenant_id, now=now)


def _reach(
    session: Session, new: Sequence[NewSuppression], persons: Persons, *, tenant_id: UUID, now: datetime
) -> list[Sequence[bytes] | NotKept]:
    """Find the addresses that each item is about, or why it is about none."""
    refs = sorted({each.about.ref for each in new if each.about.ref is not None and each.about.number is None})
    known: dict[tuple[str | None, str], list[bytes]] = {}
    for row in rows(session, ADDRESSES_OF, tenant=tenant_id, refs=refs) if refs else []:
        known.setdefault((row.recipient_ref, row.channel), []).append(bytes(row.address_hash))
    return [_addresses(each, persons, known, now) for each in new]


def _addresses(
    new: NewSuppression, persons: Persons, known: Mapping[tuple[str | None, str], list[bytes]], now: datetime
) -> Sequence[bytes] | NotKept:
    about = new.about
    if new.at is not None and new.at > now + AHEAD:
        return NotKept.IN_THE_FUTURE
    if about.fingerprint is not None:
        return [about.fingerprint]
    if about.number is None:
        return known.get((about.ref, about.channel), NotKept.NO_ADDRESS)
    if about.ref is not None and new.act == "suppress":
        contact = persons.reach(Addressee(about.ref, about.channel, about.number))
        if isinstance(contact, Contacted):
            return [contact.address_hash]
    # Of a stranger, and of who was erased, no more than this is kept; and nobody is known by a lift.
    return [address_hash(about.channel, about.number.e164).digest]


def _of(hashes: Sequence[bytes] | NotKept) -> Sequence[bytes]:
    return () if isinstance(hashes, NotKept) else hashes


@dataclass(slots=True)
class _Page:
    """What was said of the addresses of a page, and what is to be written of them."""

    tenant_id: UUID
    cause_id: UUID
    now: datetime
    said: dict[bytes, list[_Act]] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)

    def read(self, session: Session, hashes: Iterable[bytes]) -> None:
        """Read what was said of these addresses until now."""
        self.said = {}
        for row in rows(session, SAID, tenant=self.tenant_id, hashes=sorted(hashes)):
            scope = (row.channel, row.category, row.everything, row.act, row.source)
            act = _Act(row.id, *scope, row.said_at, row.listed, row.lifted)
            self.said.setdefault(bytes(row.address_hash), []).append(act)

    def find(self, new: NewSuppression, hashes: Sequence[bytes] | NotKept) -> Told | NotKept | None:
        """Find what says this already, or why it cannot be kept; None where it is to be written."""
        if isinstance(hashes, NotKept):
            return hashes
        same = [act for digest in hashes if (act := self._same(new, digest)) is not None]
        return Told(tuple(act.id for act in same), is_new=False) if len(same) == len(hashes) else None

    def keep(self, new: NewSuppression, hashes: Sequence[bytes]) -> Told | NotKept:
        """Lay an act out as rows, one for each address of which it says something new."""
        known = {digest: self._same(new, digest) for digest in hashes}
        ids = [act.id if act else self._lay_out(new, digest) for digest, act in known.items()]
        told = tuple(row_id for row_id in ids if row_id is not None)
        return Told(told, is_new=True) if told else NotKept.NOTHING_STANDS

    def _same(self, new: NewSuppression, digest: bytes) -> _Act | None:
        return next((act for act in self.said.get(digest, ()) if act.says(new)), None)

    def _lay_out(self, new: NewSuppression, digest: bytes) -> UUID | None:
        """Write one act of one address down; None for a lift of nothing."""
        said, said_at = self.said.setdefault(digest, []), new.at or self.now
        lifted = [act for act in said if act.is_taken_back(new, said_at)] if new.act == "lift" else []
        if new.act == "lift" and not lifted:
            return None
        for act in lifted:
            act.lifted = True
        row: dict[str, Any] = {
            "id": new_id(),
            "tenant_id": self.tenant_id,
            "address_hash": digest,
            "hash_key_id": _hash_key(),
            "channel": new.about.channel,
            "category": new.category,
            "everything": new.everything,
            "act": new.act,
            "lifts": sorted(act.id for act in lifted) or None,
            "source": new.source,
            "cause_id": self.cause_id,
            "at": self.now,
            "told_at": new.at,
            "reason": new.reason,
        }
        self.rows.append(row)
        scope = (new.about.channel, new.category, new.everything, new.act, new.source)
        act = _Act(row["id"], *scope, said_at, listed=new.at is not None, lifted=False)
        said.append(act)
        return act.id


def _hash_key() -> str:
    return lasting_hash("gate", b"").key_id
