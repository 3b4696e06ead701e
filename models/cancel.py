"""Cancellations: whole occasions that were called off, what each found, and what carriers were asked to drop."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Texts, one_of
from policy.words import Found


class Cancellation(Base):
    """One occasion (type and subject) that a tenant called off: everything accepted before the cut is closed, or told of."""

    __tablename__ = "cancellation"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    key: Mapped[str | None]
    """The Idempotency-Key; without one each call is a cancellation of its own."""
    type: Mapped[str]
    subject: Mapped[str]
    excepted: Mapped[Texts]
    """Refs of the recipients who stay as they are, sorted."""
    reason: Mapped[str]
    actor: Mapped[str]
    action_id: Mapped[UUID]
    begun_at: Mapped[datetime]
    cut_at: Mapped[datetime | None]
    """The `now` of the transaction that ended it; null while it is under way, or was broken off."""
    cancelled_count: Mapped[int | None]
    handed_off_count: Mapped[int | None]
    joined_count: Mapped[int | None]
    closed_count: Mapped[int | None]
    excepted_count: Mapped[int | None]

    __table_args__ = (
        UniqueConstraint("tenant_id", "key"),
        CheckConstraint(
            "num_nulls(cut_at, cancelled_count, handed_off_count, joined_count, closed_count, excepted_count) IN (0, 6)",
            name="counted_at_the_cut",
        ),
    )


class Cancelled(Base):
    """What a cancellation found of one event on one channel. Append-only."""

    __tablename__ = "cancelled"

    cancellation_id: Mapped[UUID] = mapped_column(primary_key=True)
    event_id: Mapped[UUID] = mapped_column(primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    """Its own intent, or the one that it joined."""
    found: Mapped[str]

    __table_args__ = (
        # Whoever frees a business key asks it who must not get it.
        Index(None, "event_id", "channel"),
        one_of("found", Found),
    )


class CarrierCancel(Base):
    """A handed-off attempt that its carrier is asked not to deliver. What it answers is evidence, and no outcome."""

    __tablename__ = "carrier_cancel"

    attempt_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    route_id: Mapped[UUID]
    requested_at: Mapped[datetime]
    ask_at: Mapped[datetime | None]
    """When to ask, or to ask again; null when nobody asks any more."""
    ask_count: Mapped[int]
    answer: Mapped[str | None]
    """The state that the carrier answered with, or why there was no answer."""
    observation_id: Mapped[UUID | None]
    """Under which the answer was observed, where it said something of the message."""
    ended_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_carrier_cancel_ask_at", "ask_at", "attempt_id", postgresql_where=text("ask_at IS NOT NULL")),
        CheckConstraint("(ask_at IS NULL) = (ended_at IS NOT NULL)", name="ended"),
    )
