"""Work: what is due, what others want, what serialises a person, what carriers called in."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Computed,
    Identity,
    Index,
    Sequence,
    SmallInteger,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Texts, one_of
from policy.keywords import Word
from policy.words import Channel, Lane, SuppressedBy

# One number per claimed page: whoever holds the current one may prepare.
LEASES = Sequence("lease", metadata=Base.metadata)

# The places of inbound texts in what their tenants read.
INBOUND_POSITIONS = Sequence("inbound_position", metadata=Base.metadata)


class Outbox(Base):
    """This attempt is due at T in lane L by route R. Small: a row leaves at handoff."""

    __tablename__ = "outbox"

    attempt_id: Mapped[UUID] = mapped_column(primary_key=True)
    intent_id: Mapped[UUID]
    event_id: Mapped[UUID]
    tenant_id: Mapped[UUID]
    lane: Mapped[str]
    route_id: Mapped[UUID]
    due_at: Mapped[datetime]
    reason: Mapped[str | None]
    """Why it waits, when it was deferred."""
    decision_id: Mapped[UUID]
    """The decision in force."""
    held_at: Mapped[datetime | None]
    """When the decision in force was last taken again and found unchanged."""
    gate_seen_at: Mapped[datetime | None]
    """The gate's latest suppression as that decision saw it; another one there sends the row back."""
    lease: Mapped[int | None]
    leased_until: Mapped[datetime | None]
    lost_lease_count: Mapped[int] = mapped_column(SmallInteger)
    claimable_at: Mapped[datetime] = mapped_column(Computed("GREATEST(due_at, leased_until)", persisted=True))
    """GREATEST passes over nulls: due, and not leased any more."""

    __table_args__ = (
        Index(None, "lane", "route_id", "claimable_at", "attempt_id"),
        Index(None, "intent_id"),
        one_of("lane", Lane),
        CheckConstraint("(lease IS NULL) = (leased_until IS NULL)", name="leased_until_then"),
    )


class DispatchFloor(Base):
    """Where the claim of a lane and route starts, so that dead rows under an old snapshot cost nothing."""

    __tablename__ = "dispatch_floor"

    lane: Mapped[str] = mapped_column(primary_key=True)
    route_id: Mapped[UUID] = mapped_column(primary_key=True)
    floor_at: Mapped[datetime]


class SweepFloor(Base):
    """Where a sweep starts, so that dead rows under an old snapshot cost nothing."""

    __tablename__ = "sweep_floor"

    name: Mapped[str] = mapped_column(primary_key=True)
    floor_at: Mapped[datetime]


class FeedPending(Base):
    """A transition that has no place in the feed yet."""

    __tablename__ = "feed_pending"

    transition_id: Mapped[UUID] = mapped_column(primary_key=True)
    intent_id: Mapped[UUID]
    n: Mapped[int]
    tenant_id: Mapped[UUID]
    recipient_ref: Mapped[str]

    __table_args__ = (Index(None, "intent_id", "n"),)


class FeedState(Base):
    """One row: the feed's epoch, and the moment up to which it is complete."""

    __tablename__ = "feed_state"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int]
    complete_until: Mapped[datetime]

    __table_args__ = (CheckConstraint("id = 1", name="one_row"),)


class Inlet(Base):
    """An event that another program inserted inside its own transaction. Counts as vault until emptied."""

    __tablename__ = "inlet"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    tenant: Mapped[str]
    request: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(server_default=text("clock_timestamp()"))
    status: Mapped[str] = mapped_column(server_default="waiting")
    event_id: Mapped[UUID | None]
    error: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    sealed_request: Mapped[bytes | None]
    person_key_id: Mapped[UUID | None]
    done_at: Mapped[datetime | None]

    __table_args__ = (
        Index("ix_inlet_waiting", "id", postgresql_where=text("status = 'waiting'")),
        Index("ix_inlet_refused", "id", postgresql_where=text("status = 'refused'")),
        CheckConstraint("status IN ('waiting', 'accepted', 'refused')", name="status"),
        CheckConstraint("(status = 'waiting') = (done_at IS NULL)", name="done"),
        CheckConstraint("status = 'waiting' OR request IS NULL", name="emptied"),
        CheckConstraint("status <> 'waiting' OR request IS NOT NULL", name="asked"),
    )


class Gate(Base):
    """One row per tenant and address: what everything about that person is serialised on."""

    __tablename__ = "gate"

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    address_hash: Mapped[bytes] = mapped_column(primary_key=True)
    hash_key_id: Mapped[str]
    slots: Mapped[dict[str, Any]] = mapped_column(JSONB)
    """category -> {business_key, attempt_id, until}: who contacted last, and until when others wait."""
    suppressed_at: Mapped[datetime | None]
    """The latest suppression; a decision taken before it does not admit."""
    changed_at: Mapped[datetime]


class Spend(Base):
    """What a tenant spent on one route in one country in one hour, where a version caps it."""

    __tablename__ = "spend"

    tenant_id: Mapped[UUID] = mapped_column(primary_key=True)
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    """Its beginning, in UTC."""
    route_id: Mapped[UUID] = mapped_column(primary_key=True)
    country: Mapped[str] = mapped_column(primary_key=True)
    currency: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[Decimal]
    attempt_count: Mapped[int]
    let_pass: Mapped[Decimal]
    """So much of it an operator has let pass: the breaker does not count it again."""


class Receipt(Base):
    """A carrier's call: verified, deduplicated, and observed or waiting to be."""

    __tablename__ = "receipt"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    route_id: Mapped[UUID]
    dedupe_key: Mapped[str]
    attempt_id: Mapped[UUID | None]
    reports: Mapped[list[Any]] = mapped_column(JSONB)
    """What was read out of it: states, codes, remote ids; never an address."""
    status: Mapped[str]
    repeat_count: Mapped[int]
    received_at: Mapped[datetime]
    observed_at: Mapped[datetime | None]

    __table_args__ = (
        UniqueConstraint("route_id", "dedupe_key"),
        Index("ix_receipt_unobserved", "received_at", "id", postgresql_where=text("status IN ('waiting', 'unmatched')")),
        Index("ix_receipt_quarantined", "received_at", postgresql_where=text("status = 'quarantined'")),
        Index(None, "attempt_id"),
        CheckConstraint("status IN ('waiting', 'observed', 'unmatched', 'quarantined', 'no_news')", name="status"),
        CheckConstraint("(status = 'observed') = (observed_at IS NOT NULL)", name="observed"),
    )


class ReceiptRaw(Base):
    """The raw call behind a receipt, encrypted; bounded and prunable."""

    __tablename__ = "receipt_raw"

    receipt_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    person_key_id: Mapped[UUID]
    sealed_call: Mapped[bytes]
    received_at: Mapped[datetime]


class RefusedReceipt(Base):
    """A call that did not verify: kept for a replay after a wrong secret, capped, changing nothing."""

    __tablename__ = "refused_receipt"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    route_id: Mapped[UUID]
    cause: Mapped[str]
    person_key_id: Mapped[UUID]
    sealed_call: Mapped[bytes]
    received_at: Mapped[datetime]

    __table_args__ = (Index(None, "route_id", "received_at"),)


class Review(Base):
    """An open question that only a person, or an approved rule, may settle."""

    __tablename__ = "review"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    event_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    attempt_id: Mapped[UUID]
    route_id: Mapped[UUID | None]
    cause: Mapped[str]
    opened_at: Mapped[datetime]
    settled_at: Mapped[datetime | None]
    settled_as: Mapped[str | None]
    """heard, when an outcome answered it; else how a person settled it."""
    settled_by: Mapped[str | None]
    settled_action_id: Mapped[UUID | None]
    settled_reason: Mapped[str | None]

    __table_args__ = (
        Index("ix_review_open", "tenant_id", "id", postgresql_where=text("settled_at IS NULL")),
        Index("uq_review_open", "attempt_id", unique=True, postgresql_where=text("settled_at IS NULL")),
        Index(None, "intent_id"),
    )


class Heartbeat(Base):
    """When a periodic part last did its work; not when it was last alive."""

    __tablename__ = "heartbeat"

    name: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]


class Tally(Base):
    """Counts for /metrics, added up by the feed's sequencer, which sees each transition once."""

    __tablename__ = "tally"

    name: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float]


class Inbound(Base):
    """What somebody wrote to a number of ours: kept, then acted on. The text itself is in the vault."""

    __tablename__ = "inbound"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    route_id: Mapped[UUID]
    channel: Mapped[str]
    dedupe_key: Mapped[str]
    address_hash: Mapped[bytes | None]
    """None where the carrier names no number."""
    hash_key_id: Mapped[str | None]
    refs: Mapped[Texts]
    """The recipients who have, or had, this address."""
    person_key_id: Mapped[UUID]
    sealed_text: Mapped[bytes]
    word: Mapped[str]
    """What it asks for, as `policy.keywords` reads it."""
    tier: Mapped[str | None]
    scope: Mapped[str | None]
    source: Mapped[str]
    """What an opt-out is kept as."""
    answered: Mapped[bool] = mapped_column(Boolean)
    """The carrier takes it for an opt-out and answers it, where it does that on this route."""
    review: Mapped[bool] = mapped_column(Boolean)
    """A person should read it."""
    status: Mapped[str]
    confirmation: Mapped[str | None]
    """What became of the confirmation of an opt-out."""
    repeat_count: Mapped[int]
    received_at: Mapped[datetime]
    acted_at: Mapped[datetime | None]
    position: Mapped[int | None]
    """Its place in what the tenant reads, given once it is committed."""

    __table_args__ = (
        UniqueConstraint("route_id", "dedupe_key"),
        UniqueConstraint("tenant_id", "position"),
        Index("ix_inbound_waiting", "received_at", "id", postgresql_where=text("status = 'waiting'")),
        Index("ix_inbound_unplaced", "id", postgresql_where=text("position IS NULL")),
        one_of("channel", Channel),
        one_of("word", Word),
        one_of("source", SuppressedBy),
        CheckConstraint("status IN ('waiting', 'acted', 'quarantined')", name="status"),
        CheckConstraint("(status = 'acted') = (acted_at IS NOT NULL)", name="acted"),
    )


class InboundRaw(Base):
    """The raw call behind a text, encrypted; bounded and prunable."""

    __tablename__ = "inbound_raw"

    inbound_id: Mapped[UUID] = mapped_column(primary_key=True)
    tenant_id: Mapped[UUID]
    person_key_id: Mapped[UUID]
    sealed_call: Mapped[bytes]
    received_at: Mapped[datetime]
