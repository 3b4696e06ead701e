"""The ledger: events, intents, decisions, attempts, what was heard, what changed."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Identity,
    Index,
    Numeric,
    SmallInteger,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from models.base import Base, Id, Texts, one_of
from policy.states import AttemptState, IntentState, Judgement, PublicState
from policy.words import AllowedBy, Category, Channel, ErrorClass, Source, Verdict


class Event(Base):
    """One accepted business fact, immutable."""

    __tablename__ = "event"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    key: Mapped[str]
    key_given: Mapped[bool] = mapped_column(Boolean)
    """Keys a caller gives and keys we derive are separate namespaces."""
    business_key: Mapped[str]
    content_hash: Mapped[bytes]
    """Keyed hash of the canonical request as sent; compared before anything that time can change."""
    hash_key_id: Mapped[str]
    type: Mapped[str]
    subject: Mapped[str]
    recipient_ref: Mapped[str]
    category: Mapped[str]
    template_name: Mapped[str]
    template_version: Mapped[int]
    policy_version_id: Mapped[UUID | None]
    person_key_id: Mapped[UUID]
    payload: Mapped[bytes]
    """Data, addresses, zone and locale, encrypted under the person's key."""
    expires_at: Mapped[datetime]
    not_before: Mapped[datetime | None]
    details: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB)
    stake: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    source: Mapped[str]
    accepted_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("tenant_id", "key_given", "key"),
        Index(None, "tenant_id", "business_key"),
        Index(None, "tenant_id", "type", "subject"),
        one_of("category", Category),
    )


class Intent(Base):
    """One event on one channel: the wish to reach one recipient once, and where it stands."""

    __tablename__ = "intent"

    id: Mapped[Id]
    event_id: Mapped[UUID] = mapped_column(ForeignKey("event.id"))
    tenant_id: Mapped[UUID]
    business_key: Mapped[str]
    channel: Mapped[str]
    category: Mapped[str]
    recipient_ref: Mapped[str]
    contact_id: Mapped[UUID]
    gate_hash: Mapped[bytes]
    """Keyed hash of the address: which gate row serialises this person."""
    declared_zone: Mapped[str | None]
    number_type: Mapped[str | None]
    """What the number's plan says it is for; the address itself is in the vault."""
    subdivisions: Mapped[Texts | None]
    """The parts of the country that the number's area code stands for."""
    expires_at: Mapped[datetime]
    accepted_at: Mapped[datetime]
    state: Mapped[str]
    reason: Mapped[str | None]
    next_at: Mapped[datetime | None]
    transition_count: Mapped[int]
    holds_key: Mapped[bool] = mapped_column(Boolean)
    """Freed only when the intent closes without any handoff."""
    close_requested_at: Mapped[datetime | None]
    close_request: Mapped[str | None]
    """What was asked after handoff: no new attempt follows, the state follows what is heard."""
    closed_at: Mapped[datetime | None]

    __table_args__ = (
        Index("uq_intent_holder", "tenant_id", "business_key", "channel", unique=True, postgresql_where=text("holds_key")),
        Index(None, "event_id"),
        Index("ix_intent_open", "expires_at", "id", postgresql_where=text("closed_at IS NULL")),
        # Not by state: an index that speaks of it would make every change of state write to all indexes.
        Index("ix_intent_close_requested", "tenant_id", "id", postgresql_where=text("close_requested_at IS NOT NULL")),
        one_of("channel", Channel),
        one_of("category", Category),
        one_of("state", IntentState),
        CheckConstraint("closed_at IS NULL OR reason IS NOT NULL", name="closed_with_reason"),
    )


class Joining(Base):
    """A later event on a business key that an intent holds: kept, and contacting nobody."""

    __tablename__ = "joining"

    event_id: Mapped[UUID] = mapped_column(ForeignKey("event.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    intent_id: Mapped[UUID] = mapped_column(ForeignKey("intent.id"))
    tenant_id: Mapped[UUID]
    contact_id: Mapped[UUID]
    joined_at: Mapped[datetime]

    __table_args__ = (Index(None, "intent_id"),)


class Decision(Base):
    """What a pinned policy version said about an intent at a moment, and what it saw."""

    __tablename__ = "decision"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    event_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    attempt_id: Mapped[UUID]
    policy_version_id: Mapped[UUID | None]
    moment: Mapped[str]
    verdict: Mapped[str]
    reason: Mapped[str | None]
    not_before: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    evidence: Mapped[dict[str, Any]] = mapped_column(JSONB)
    decided_at: Mapped[datetime]

    __table_args__ = (
        Index(None, "intent_id"),
        one_of("verdict", Verdict),
        CheckConstraint("moment IN ('acceptance', 'dispatch')", name="moment"),
    )


class Attempt(Base):
    """One dispatch of an intent through one route."""

    __tablename__ = "attempt"

    id: Mapped[Id]
    intent_id: Mapped[UUID] = mapped_column(ForeignKey("intent.id"))
    event_id: Mapped[UUID]
    tenant_id: Mapped[UUID]
    ordinal: Mapped[int] = mapped_column(SmallInteger)
    route_id: Mapped[UUID | None]
    attempt_key: Mapped[str]
    """Stable idempotency token, and the unguessable reference in callback URLs."""
    state: Mapped[str]
    error_class: Mapped[str | None]
    error_code: Mapped[str | None]
    body_hash: Mapped[bytes | None]
    hash_key_id: Mapped[str | None]
    encoding: Mapped[str | None]
    segment_count: Mapped[int | None] = mapped_column(SmallInteger)
    price: Mapped[Decimal | None] = mapped_column(Numeric)
    """Of all its segments, by the policy that accepted it; what the carrier bills may differ."""
    currency: Mapped[str | None]
    allowed_by: Mapped[str | None]
    """What let it follow the attempt before it; null for the first, and for what the releases before this column made."""
    decision_id: Mapped[UUID | None]
    """The decision that admitted it, set once at prepare."""
    lease: Mapped[int | None]
    prepared_at: Mapped[datetime | None]
    answered_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]
    taken: Mapped[bool] = mapped_column(Boolean)
    """Any report, also a stale one, said that the carrier has it."""
    next_check_at: Mapped[datetime | None]
    horizon_at: Mapped[datetime | None]
    check_count: Mapped[int]
    not_found_count: Mapped[int] = mapped_column(SmallInteger)
    unheard_at: Mapped[datetime | None]
    """In doubt: when the pinned rule answers, if nothing at all was heard of it by then."""
    created_at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("attempt_key"),
        UniqueConstraint("intent_id", "ordinal"),
        Index("ix_attempt_next_check", "next_check_at", "id", postgresql_where=text("next_check_at IS NOT NULL")),
        Index("ix_attempt_queued", "id", postgresql_where=text("state = 'queued'")),
        Index("ix_attempt_doubtful", "route_id", postgresql_where=text("state = 'unknown' AND next_check_at IS NOT NULL")),
        Index(
            "ix_attempt_contradicted",
            "tenant_id",
            "id",
            postgresql_where=text("state = 'delivered' AND error_class IS NOT NULL"),
        ),
        Index("ix_attempt_unheard", "unheard_at", "id", postgresql_where=text("unheard_at IS NOT NULL")),
        one_of("state", AttemptState),
        one_of("error_class", ErrorClass),
        one_of("allowed_by", AllowedBy),
        CheckConstraint("(price IS NULL) = (currency IS NULL)", name="price"),
        CheckConstraint("state NOT IN ('prepared', 'submitted') OR next_check_at IS NOT NULL", name="checked_while_open"),
        CheckConstraint("state IN ('prepared', 'submitted', 'unknown') OR next_check_at IS NULL", name="unchecked_when_settled"),
        CheckConstraint("state <> 'prepared' OR (prepared_at IS NOT NULL AND decision_id IS NOT NULL)", name="admitted"),
    )


class RemoteId(Base):
    """The carrier's ids for an attempt, one per part."""

    __tablename__ = "remote_id"

    route_id: Mapped[UUID] = mapped_column(primary_key=True)
    remote_id: Mapped[str] = mapped_column(primary_key=True)
    attempt_id: Mapped[UUID]
    event_id: Mapped[UUID]
    tenant_id: Mapped[UUID]
    part: Mapped[int] = mapped_column(SmallInteger)

    __table_args__ = (UniqueConstraint("attempt_id", "part"),)


class Observation(Base):
    """Anything heard about an attempt, with the verdict on it. Append-only."""

    __tablename__ = "observation"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    event_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    attempt_id: Mapped[UUID]
    source: Mapped[str]
    state: Mapped[str]
    judgement: Mapped[str]
    conflict: Mapped[bool] = mapped_column(Boolean)
    """It brought a second remote id, or one that another attempt holds."""
    error_class: Mapped[str | None]
    error_code: Mapped[str | None]
    reason: Mapped[str | None]
    remote_id: Mapped[str | None]
    receipt_id: Mapped[UUID | None]
    source_at: Mapped[datetime | None]
    observed_at: Mapped[datetime]

    __table_args__ = (
        Index(None, "attempt_id"),
        Index("ix_observation_conflict", "tenant_id", "id", postgresql_where=text("conflict")),
        one_of("source", Source),
        one_of("state", AttemptState),
        one_of("judgement", Judgement),
    )


class Transition(Base):
    """A change of the public state, with its cause. Append-only; history is these, one to one."""

    __tablename__ = "transition"

    id: Mapped[Id]
    tenant_id: Mapped[UUID]
    event_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    attempt_id: Mapped[UUID]
    n: Mapped[int]
    """Counted on the intent under its lock; 1 is `queued`."""
    from_state: Mapped[str | None]
    state: Mapped[str]
    reason: Mapped[str | None]
    next_at: Mapped[datetime | None]
    cause: Mapped[str]
    cause_id: Mapped[UUID | None]
    at: Mapped[datetime]

    __table_args__ = (
        UniqueConstraint("intent_id", "n"),
        Index("ix_transition_after_cancel", "tenant_id", "id", postgresql_where=text("from_state = 'cancelled'")),
        one_of("state", PublicState),
    )


class FeedEntry(Base):
    """A transition's place in the one order that readers follow."""

    __tablename__ = "feed"

    position: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    transition_id: Mapped[UUID]
    intent_id: Mapped[UUID]
    tenant_id: Mapped[UUID]
    recipient_ref: Mapped[str]

    __table_args__ = (
        UniqueConstraint("transition_id"),
        Index(None, "tenant_id", "position"),
        Index(None, "tenant_id", "recipient_ref", "position"),
        Index(None, "intent_id", "position"),
    )
