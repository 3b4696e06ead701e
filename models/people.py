"""People: their vault keys, their addresses, what they agreed to, and what they asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, CheckConstraint, Index, UniqueConstraint, Uuid, false
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, one_of
from policy.words import Category, Channel, SuppressedBy

CONSENT_KIND = "^[a-z][a-z0-9_]{0,49}$"
"""What laws and policy documents tell apart: express, express_written, implied_ebr, soft_opt_in, night, dnc_checked and more."""


class PersonKey(Base):
    """The vault key of one person; destroying it erases them. Calls that match nobody use a holding key."""

    __tablename__ = "person_key"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    kind: Mapped[str]
    name: Mapped[str]
    """The recipient's ref, or the month of a holding key."""
    wrapped_key: Mapped[bytes | None]
    created_at: Mapped[datetime]
    destroyed_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("tenant_id", "kind", "name"),
        CheckConstraint("kind IN ('person', 'holding')", name="kind"),
        CheckConstraint("(wrapped_key IS NULL) = (destroyed_at IS NOT NULL)", name="destroyed"),
    )


class Contact(Base):
    """One address of a person, immutable."""

    __tablename__ = "contact"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    recipient_ref: Mapped[str]
    channel: Mapped[str]
    address_hash: Mapped[bytes]
    hash_key_id: Mapped[str]
    sealed_address: Mapped[bytes]
    person_key_id: Mapped[UUID]
    country: Mapped[str | None]
    zones: Mapped[list[Any]] = mapped_column(JSONB)
    """IANA zones the number may lie in."""
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("tenant_id", "recipient_ref", "channel", "address_hash"),
        Index(None, "tenant_id", "address_hash"),
        one_of("channel", Channel),
    )


class Recipient(Base):
    """A person as the tenant last described them. Append-only: the highest version of a ref stands."""

    __tablename__ = "recipient"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    ref: Mapped[str]
    version: Mapped[int]
    contacts: Mapped[dict[str, Any]] = mapped_column(JSONB)
    """channel -> the contact where this person is reached now. The address itself is in the vault."""
    time_zone: Mapped[str | None]
    locale: Mapped[str | None]
    recorded_at: Mapped[datetime]
    recorded_by: Mapped[str]

    __table_args__ = (UniqueConstraint("tenant_id", "ref", "version"), CheckConstraint("version > 0", name="version"))


class Consent(Base):
    """Evidence that an address may be contacted, or that this was withdrawn. Append-only; which act stands is read.

    It hangs on the address: a number that went to somebody else takes no consent along.
    """

    __tablename__ = "consent"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    content_hash: Mapped[bytes]
    """Of all that was told: the same evidence told twice is one row."""
    recipient_ref: Mapped[str]
    contact_id: Mapped[UUID]
    """Who said it, and where the address itself is kept."""
    address_hash: Mapped[bytes]
    hash_key_id: Mapped[str]
    channel: Mapped[str]
    category: Mapped[str | None]
    """None: every category."""
    act: Mapped[str]
    kind: Mapped[str | None]
    """None, of a withdrawal: every kind."""
    captured_at: Mapped[datetime]
    """When the person said so."""
    expires_at: Mapped[datetime | None]
    wording: Mapped[str | None]
    """The version of the words that they agreed to."""
    source: Mapped[str]
    """How it was captured, in the tenant's words."""
    recorded_at: Mapped[datetime]
    recorded_by: Mapped[str]

    __table_args__ = (
        Index(None, "tenant_id", "address_hash"),
        Index(None, "tenant_id", "id"),
        UniqueConstraint("tenant_id", "content_hash"),
        one_of("channel", Channel),
        one_of("category", Category),
        CheckConstraint("act IN ('grant', 'withdraw')", name="act"),
        CheckConstraint(f"kind ~ '{CONSENT_KIND}'", name="kind"),
        CheckConstraint("act = 'withdraw' OR kind IS NOT NULL", name="granted_kind"),
        CheckConstraint("act = 'grant' OR expires_at IS NULL", name="withdrawn_for_good"),
        CheckConstraint("expires_at > captured_at", name="expiry"),
    )


class Preference(Base):
    """What a person asked for: a category on a channel, or not. Append-only; the latest of a scope stands."""

    __tablename__ = "preference"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    content_hash: Mapped[bytes]
    recipient_ref: Mapped[str]
    contact_id: Mapped[UUID]
    address_hash: Mapped[bytes]
    hash_key_id: Mapped[str]
    channel: Mapped[str]
    category: Mapped[str | None]
    """None: every category."""
    wanted: Mapped[bool] = mapped_column(Boolean)
    at: Mapped[datetime]
    """When the person said so."""
    recorded_at: Mapped[datetime]
    recorded_by: Mapped[str]

    __table_args__ = (
        Index(None, "tenant_id", "address_hash"),
        Index(None, "tenant_id", "id"),
        UniqueConstraint("tenant_id", "content_hash"),
        one_of("channel", Channel),
        one_of("category", Category),
    )


class Suppression(Base):
    """Do not contact this address, or: contact it again. Append-only; what no lift names stands."""

    __tablename__ = "suppression"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    address_hash: Mapped[bytes]
    hash_key_id: Mapped[str]
    channel: Mapped[str]
    category: Mapped[str | None]
    """None: every category that the policy lets an opt-out reach."""
    everything: Mapped[bool] = mapped_column(Boolean, server_default=false())
    """Every category, whatever the policy says: STOPALL, a wrong number."""
    act: Mapped[str]
    lifts: Mapped[list[UUID] | None] = mapped_column(ARRAY(Uuid))
    """Of a lift: the rows that it lifts."""
    source: Mapped[str]
    cause_id: Mapped[UUID | None]
    """What it came from: an inbound text, an observation, an operator's action."""
    at: Mapped[datetime]
    """When it was written down: from then on it counts."""
    told_at: Mapped[datetime | None]
    """When the person said so, where whoever told it named another time."""
    reason: Mapped[str | None]
    """Why, where one action brought many in; else the action says it."""

    __table_args__ = (
        Index(None, "tenant_id", "address_hash", "at"),
        one_of("channel", Channel),
        one_of("category", Category),
        CheckConstraint("act IN ('suppress', 'lift')", name="act"),
        one_of("source", SuppressedBy),
        CheckConstraint("(act = 'lift') = (lifts IS NOT NULL)", name="lifts"),
        CheckConstraint("NOT everything OR (act = 'suppress' AND category IS NULL)", name="everything"),
    )
