"""People: their vault keys, their addresses, and what they asked for."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, UniqueConstraint
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, one_of
from policy.words import Category, Channel


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

    __table_args__ = (UniqueConstraint("tenant_id", "recipient_ref", "channel", "address_hash"), one_of("channel", Channel))


class Suppression(Base):
    """Do not contact this address, or: contact it again. Append-only; the latest act of a scope stands."""

    __tablename__ = "suppression"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    address_hash: Mapped[bytes]
    hash_key_id: Mapped[str]
    channel: Mapped[str]
    category: Mapped[str | None]
    """None: every category."""
    act: Mapped[str]
    source: Mapped[str]
    cause_id: Mapped[UUID | None]
    at: Mapped[datetime]

    __table_args__ = (
        Index(None, "tenant_id", "address_hash", "at"),
        one_of("channel", Channel),
        one_of("category", Category),
        CheckConstraint("act IN ('suppress', 'lift')", name="act"),
        CheckConstraint("source IN ('keyword', 'carrier', 'operator', 'api')", name="source"),
    )
