"""The desk: tenants, their keys, and what people did."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Texts


class Tenant(Base):
    """The application that sends; every row belongs to one."""

    __tablename__ = "tenant"

    id: Mapped[Id]
    name: Mapped[str]
    created_at: Mapped[datetime]

    __table_args__ = (UniqueConstraint("name"),)


class ApiKey(Base):
    """A key to the API: only its hash is kept."""

    __tablename__ = "api_key"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    name: Mapped[str]
    secret_hash: Mapped[bytes]
    """SHA-256 of 32 random bytes: too long to guess, so no slow hash is needed."""
    scopes: Mapped[Texts]
    created_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]


class OperatorAction(Base):
    """Something a person did, and why. Append-only."""

    __tablename__ = "operator_action"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    actor: Mapped[str]
    verb: Mapped[str]
    subject: Mapped[dict[str, Any]] = mapped_column(JSONB)
    reason: Mapped[str]
    at: Mapped[datetime]

    __table_args__ = (
        Index(
            "ix_operator_action_cancel", "tenant_id", text("(subject ->> 'event_id')"), postgresql_where=text("verb = 'cancel'")
        ),
    )
