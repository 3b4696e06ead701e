"""Rules and configuration: policy versions, templates, routes, pauses. Rows are immutable but for a pause's end."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, Integer, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Texts, one_of
from policy.words import Category, Channel, Lane


class PolicyVersion(Base):
    """A published policy document: immutable, hashed, with an owner and dates."""

    __tablename__ = "policy_version"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    name: Mapped[str]
    version: Mapped[str]
    sha256: Mapped[str]
    document: Mapped[dict[str, Any]] = mapped_column(JSONB)
    owner: Mapped[str]
    reviewer: Mapped[str | None]
    status: Mapped[str]
    effective_from: Mapped[datetime]
    effective_until: Mapped[datetime | None]
    published_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("tenant_id", "name", "version"),
        Index(None, "tenant_id", "effective_from"),
        CheckConstraint("status IN ('sample', 'reviewed')", name="status"),
        CheckConstraint("effective_until IS NULL OR effective_until > effective_from", name="dates"),
    )


class TemplateVersion(Base):
    """A published text: what it is for, what it needs, what it says in each locale."""

    __tablename__ = "template_version"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    name: Mapped[str]
    version: Mapped[int] = mapped_column(Integer)
    category: Mapped[str]
    variables: Mapped[Texts]
    channels: Mapped[Texts]
    bodies: Mapped[dict[str, Any]] = mapped_column(JSONB)
    """locale -> body; the first locale is the fallback and is named `default_locale`."""
    default_locale: Mapped[str]
    published_at: Mapped[datetime]

    __table_args__ = (UniqueConstraint("tenant_id", "name", "version"), one_of("category", Category))


class Route(Base):
    """A configured way to a carrier. Immutable; a change is a new row, stopping is a pause."""

    __tablename__ = "route"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    name: Mapped[str]
    channel: Mapped[str]
    carrier: Mapped[str]
    sender: Mapped[str]
    receipt_url: Mapped[str]
    settings: Mapped[dict[str, Any]] = mapped_column(JSONB)
    sealed_credentials: Mapped[bytes]
    countries: Mapped[Texts]
    """ISO codes it serves; empty means all."""
    rate_per_second: Mapped[int] = mapped_column(Integer)
    burst_count: Mapped[int] = mapped_column(Integer)
    priority: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("tenant_id", "name"),
        one_of("channel", Channel),
        CheckConstraint("rate_per_second > 0 AND burst_count > 0", name="rate"),
    )


class Pause(Base):
    """A brake: on a route, a lane, a category, a country or the whole tenant, with its cause."""

    __tablename__ = "pause"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    route_id: Mapped[UUID | None]
    lane: Mapped[str | None]
    category: Mapped[str | None]
    cause: Mapped[str]
    started_by: Mapped[str]
    started_at: Mapped[datetime]
    ended_by: Mapped[str | None]
    ended_at: Mapped[datetime | None]
    country: Mapped[str | None]

    __table_args__ = (
        Index("ix_pause_running", "tenant_id", postgresql_where=text("ended_at IS NULL")),
        # One automatic stop per route at a time: many refused logins are one fact.
        Index(
            "uq_pause_stopped_route",
            "route_id",
            unique=True,
            postgresql_where=text("ended_at IS NULL AND cause = 'auth_config'"),
        ),
        Index(
            "uq_pause_tripped_breaker",
            "route_id",
            "country",
            unique=True,
            postgresql_where=text("ended_at IS NULL AND cause = 'spend_breaker'"),
        ),
        one_of("lane", Lane),
        one_of("category", Category),
    )
