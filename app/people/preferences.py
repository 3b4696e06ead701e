"""Preferences: append what people ask for; read what stands. They follow the person to a new address, consents do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Statement, rows
from app.ground.ids import new_id
from app.people.consents import AHEAD
from app.people.evidence import Kept, content_hash, inserted_once, keep_once
from app.people.mark import marks
from app.people.persons import STORED, Addressee, Contacted, NotKept, find_persons
from models.people import Preference
from policy.words import Category

CATEGORIES = f"unnest(ARRAY{[*map(str, Category)]}) AS c (category) ON p.category IS NULL OR p.category = c.category"

# One row for each category: a wish without one is for all, and of what covers a category the latest stands. In
# one breath ("nothing but marketing") the narrower one does, and then the one that asks for less.
# To be read after the gates, as the standing consents are.
STANDING = f"""
SELECT DISTINCT ON (p.tenant_id, p.address_hash, p.channel, c.category)
       p.tenant_id, p.address_hash, p.id, p.channel, c.category, p.wanted, least(p.at, p.recorded_at) AS at
FROM preference p JOIN {CATEGORIES}
WHERE (p.tenant_id, p.address_hash) IN (SELECT * FROM unnest(%(gate_tenants)s::uuid[], %(hashes)s::bytea[]))
ORDER BY p.tenant_id, p.address_hash, p.channel, c.category,
         least(p.at, p.recorded_at) DESC, p.category IS NULL, p.wanted, p.recorded_at DESC, p.id
"""  # noqa: S608 - put together from our own words

# What each person stands by, at whichever address of theirs it was told.
OF_PEOPLE = f"""
SELECT DISTINCT ON (p.recipient_ref, p.channel, c.category)
       p.recipient_ref, p.channel, c.category, p.wanted, least(p.at, p.recorded_at) AS at
FROM contact k
JOIN preference p ON p.tenant_id = k.tenant_id AND p.address_hash = k.address_hash
                 AND p.recipient_ref = k.recipient_ref AND p.channel = k.channel
JOIN {CATEGORIES}
WHERE k.tenant_id = %(tenant)s AND k.recipient_ref = ANY(%(refs)s::text[])
ORDER BY p.recipient_ref, p.channel, c.category,
         least(p.at, p.recorded_at) DESC, p.category IS NULL, p.wanted, p.recorded_at DESC, p.id
"""  # noqa: S608 - put together from our own words


@dataclass(frozen=True, slots=True)
class NewPreference:
    """One wish to be kept."""

    about: Addressee
    category: str | None
    wanted: bool
    at: datetime | None
    """None: now, unless it is what stands already."""


@dataclass(frozen=True, slots=True)
class Move:
    """A person's new address on a channel."""

    ref: str
    channel: str
    contact: Contacted


def record_preferences(
    session: Session, new: Sequence[NewPreference], *, tenant_id: UUID, actor: str, now: datetime
) -> list[Kept | NotKept]:
    """Keep many wishes in order, each on its own; Raced when another was first to know one of these people."""
    persons = find_persons(session, [each.about for each in new], tenant_id=tenant_id, now=now)
    contacts = [persons.reach(each.about) for each in new]
    hashes = {contact.address_hash for contact in contacts if isinstance(contact, Contacted)}
    standing = {_scope(row): (row.id, row.wanted) for row in standing_preferences(session, hashes, tenant_id=tenant_id)}
    page = _Page(tenant_id, now, standing, {_named(each, c) for each, c in zip(new, contacts, strict=True) if each.category})
    # Those for all categories first: what qualifies one of them must be written after it.
    order = sorted(range(len(new)), key=lambda n: new[n].category is not None)
    told = {n: page.row_of(new[n], contacts[n]) for n in order}
    fresh = [row for n in range(len(new)) if isinstance(row := told[n], dict)]
    kept = iter(_keep(session, fresh, persons.statements(), tenant_id=tenant_id, actor=actor, now=now) if fresh else [])
    return [next(kept) if isinstance(row := told[n], dict) else row for n in range(len(new))]


def _keep(
    session: Session, fresh: Sequence[dict[str, Any]], people: Sequence[Statement], *, tenant_id: UUID, actor: str, now: datetime
) -> list[Kept]:
    signed = _signed(fresh, actor, now)
    return keep_once(session, Preference, signed, before=[*people, *_marked(signed, tenant_id, now)], tenant_id=tenant_id)


Scope = tuple[bytes, str, str | None]


@dataclass(slots=True)
class _Page:
    """Wishes told together, and what stands while they are told one after the other."""

    tenant_id: UUID
    now: datetime
    standing: dict[Scope, tuple[UUID, bool]]
    named: set[Scope]
    """What wishes of this page name themselves: one for all categories says nothing about it."""

    def row_of(self, each: NewPreference, contact: Contacted | NotKept) -> dict[str, Any] | Kept | NotKept:
        """Lay a wish out as a row, or say why it needs none."""
        if isinstance(contact, NotKept):
            return contact
        if each.at is not None and each.at > self.now + AHEAD:
            return NotKept.IN_THE_FUTURE
        channel = each.about.channel
        scopes: list[Scope] = [(contact.address_hash, channel, category) for category in Category]
        covered = (
            [(contact.address_hash, channel, each.category)] if each.category else [s for s in scopes if s not in self.named]
        )
        stands = [self.standing[scope] for scope in covered if scope in self.standing]
        same = [row_id for row_id, wanted in stands if wanted is each.wanted]
        if each.at is None and same and len(same) == len(covered):
            return Kept(same[0], is_new=False)
        about, at = each.about, each.at or self.now
        row = _new_row(about.ref, channel, each.category, contact, wanted=each.wanted, at=at, tenant_id=self.tenant_id)
        if each.at is None:
            self.standing |= dict.fromkeys(covered if each.category else scopes, (row["id"], each.wanted))
        return row


def _named(each: NewPreference, contact: Contacted | NotKept) -> Scope:
    return contact.address_hash if isinstance(contact, Contacted) else b"", each.about.channel, each.category


def standing_preferences(session: Session, hashes: set[bytes], *, tenant_id: UUID) -> list[Any]:
    """Read what stands for some addresses of a tenant."""
    ordered = sorted(hashes)
    return rows(session, STANDING, gate_tenants=[tenant_id] * len(ordered), hashes=ordered)


def preferences_of(session: Session, *, tenant_id: UUID, ref: str) -> list[Any]:
    """Read what stands for the addresses where a recipient is reached now."""
    stored = rows(session, STORED, tenant=tenant_id, refs=[ref])
    channels = {bytes(row.address_hash): row.channel for row in stored}
    standing = standing_preferences(session, set(channels), tenant_id=tenant_id)
    return [row for row in standing if channels[bytes(row.address_hash)] == row.channel]


def carried(session: Session, moves: Sequence[Move], *, tenant_id: UUID, actor: str, now: datetime) -> list[Statement]:
    """Give the statements that take what these people do not want along to their new addresses.

    What they do want stays behind: it is asked for anew, should the category's rule need it.
    """
    contacts = {(move.ref, move.channel): move.contact for move in moves}
    found = rows(session, OF_PEOPLE, tenant=tenant_id, refs=sorted({move.ref for move in moves}))
    fresh = [
        _new_row(row.recipient_ref, row.channel, row.category, contact, wanted=False, at=row.at, tenant_id=tenant_id)
        for row in found
        if not row.wanted and (contact := contacts.get((row.recipient_ref, row.channel))) is not None
    ]
    signed = _signed(fresh, actor, now)
    return [*_marked(signed, tenant_id, now), inserted_once(Preference, signed)] if signed else []


def _scope(row: Any) -> Scope:  # noqa: ANN401 - a row of STANDING
    return bytes(row.address_hash), row.channel, row.category


def _new_row(
    ref: str, channel: str, category: str | None, contact: Contacted, *, wanted: bool, at: datetime, tenant_id: UUID
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "recipient_ref": ref,
        "address_hash": contact.address_hash,
        "channel": channel,
        "category": category,
        "wanted": wanted,
        "at": at,
    }
    named = {"id": new_id(), "tenant_id": tenant_id, "content_hash": content_hash(content)}
    return named | content | contact.columns()


def _signed(fresh: Sequence[dict[str, Any]], actor: str, now: datetime) -> list[dict[str, Any]]:
    return [row | {"recorded_at": now, "recorded_by": actor} for row in fresh]


def _marked(fresh: Sequence[dict[str, Any]], tenant_id: UUID, now: datetime) -> list[Statement]:
    """Mark the gates of those who do not want something."""
    return marks((row["address_hash"] for row in fresh if not row["wanted"]), tenant_id=tenant_id, now=now)
