"""Put the facts of an intent together and ask the policy in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from app.ledger.policies import InForce
from app.ledger.surroundings import Surroundings
from app.people.contacts import PHONENUMBERS_VERSION
from policy.applicable import price_of
from policy.decide import Decision, decide
from policy.document import Basis, Document
from policy.facts import Consent, Facts, Preference, ZoneSource
from policy.gate import Slot
from policy.limits import Price
from policy.replay import facts_of
from policy.spending import Spent, day_of
from policy.words import Category, Channel, NumberType
from policy.zones import tzdata_version

REPLY: Final = "inbound"
"""The source of events that answer a person's own text: they take no slot, and wait for none."""
REMEMBERED: Final = 100
"""Handoffs that a gate remembers at most; no cap of good sense has a higher limit."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a decision needs to know of an intent."""

    tenant_id: UUID
    business_key: str
    channel: Channel
    category: Category
    gate_hash: bytes
    country: str | None
    number_zones: tuple[str, ...]
    declared_zone: str | None
    accepted_at: datetime
    expires_at: datetime
    not_before: datetime | None
    segment_count: int | None
    number_type: NumberType | None = None
    subdivisions: tuple[str, ...] = ()
    recipient_version: int | None = None
    """Of the stored recipient that declared the zone; None where the event did, or nobody."""
    route_id: UUID | None = None
    """The attempt's own route; None at acceptance, which chooses one."""
    price: Price | None = None
    """What its attempt is counted at; None at acceptance, or where it was accepted without one."""
    accepted_on: Mapping[str, Any] | None = field(default=None, repr=False)
    """The evidence of the decision at acceptance; None: this is the acceptance."""
    confirms: str | None = None
    """The suppression that this text tells the person of, in reply to their own."""


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, the version that made it, the route it was made for, and the gate's mark it saw."""

    decision: Decision
    policy: InForce | None
    route_id: UUID | None
    gate_seen_at: datetime | None
    price: Price | None
    """What the text costs by the prices of the version; None where it names none."""


def slot_of(slots: dict[str, dict[str, str]], category: str) -> Slot | None:
    """Read a category's slot out of a gate row."""
    slot = slots.get(category)
    return None if slot is None else Slot(slot["business_key"], datetime.fromisoformat(slot["until"]))


def remember(
    told: Sequence[Mapping[str, str]], *, business_key: str, category: str, longest: timedelta, now: datetime
) -> list[Mapping[str, str]]:
    """Add a handoff to those that a gate remembers for the caps; one of the same business key counts once."""
    kept = [each for each in told if each["business_key"] != business_key and datetime.fromisoformat(each["at"]) > now - longest]
    return [*kept[1 - REMEMBERED :], {"business_key": business_key, "category": category, "at": now.isoformat()}]


def decide_wish(wish: Wish, around: Surroundings, *, now: datetime) -> Decided:
    """Decide one intent under the policy version in force at `now`."""
    policy = around.policies.get(wish.tenant_id)
    document = policy.document if policy is not None else None
    route = around.route_of(wish.tenant_id, wish.route_id) or around.route_for(
        wish.tenant_id, channel=wish.channel, country=wish.country
    )
    gate_key = (wish.tenant_id, wish.gate_hash)
    gate = around.gates.get(gate_key)
    slot = slot_of(gate.slots, wish.category) if gate is not None else None
    held = slot is not None and slot.business_key != wish.business_key and slot.until > now
    consents, preferences, basis = _agreed(wish, around, document)
    facts = Facts(
        channel=wish.channel,
        category=wish.category,
        country=wish.country,
        zones=(wish.declared_zone,) if wish.declared_zone else wish.number_zones,
        zone_source=_zone_source(wish),
        suppressions=around.suppressions_of(gate_key, channel=wish.channel),
        accepted_at=wish.accepted_at,
        expires_at=wish.expires_at,
        not_before=wish.not_before,
        cooldown_until=slot.until if held and slot else None,
        cooldown_holder=slot.business_key if held and slot else None,
        route_available=route is not None,
        tzdata_version=tzdata_version(),
        phonenumbers_version=PHONENUMBERS_VERSION,
        consents=consents,
        preferences=preferences,
        contacted=around.contacted(gate_key, business_key=wish.business_key),
        number_type=wish.number_type,
        subdivisions=wish.subdivisions,
        segment_count=wish.segment_count,
        sender_type=route.sender_type if route is not None else None,
        basis=basis,
        recipient_version=wish.recipient_version,
        confirms=wish.confirms,
    )
    if (spent := _spent(wish, around, document, facts, now)) is not None:
        facts = replace(facts, spent=spent)
    return Decided(
        decision=decide(document, facts, now=now),
        policy=policy,
        route_id=route.id if route is not None else None,
        gate_seen_at=gate.suppressed_at if gate is not None else None,
        price=price_of(document, facts, now) if document is not None else None,
    )


def _spent(wish: Wish, around: Surroundings, document: Document | None, facts: Facts, now: datetime) -> Spent | None:
    """Give what the tenant has spent today where this message would be over its cap."""
    if document is None or document.spend_per_day is None:
        return None
    price = wish.price or price_of(document, facts, now)
    if price is None:
        return None
    amount = around.spent.get((wish.tenant_id, price.currency), Decimal())
    return Spent(day_of(now), amount, price.amount) if amount + price.amount > document.spend_per_day else None


def needs_acceptance(document: Document | None, category: Category) -> bool:
    """Say whether this version goes, at dispatch, by what the person had agreed to when the event was accepted."""
    rules = document.categories.get(category) if document is not None else None
    return rules is not None and rules.basis is Basis.ACCEPTANCE


def _agreed(
    wish: Wish, around: Surroundings, document: Document | None
) -> tuple[tuple[Consent, ...], tuple[Preference, ...], Basis | None]:
    """Give the consents and preferences that count: the latest, or by the category's basis those of the acceptance."""
    if wish.accepted_on is not None and needs_acceptance(document, wish.category):
        then = facts_of(wish.accepted_on)
        return then.consents, then.preferences, Basis.ACCEPTANCE
    gate = (wish.tenant_id, wish.gate_hash)
    scope = {"channel": wish.channel, "category": wish.category}
    return around.consents_of(gate, **scope), around.preferences_of(gate, **scope), None


def _zone_source(wish: Wish) -> ZoneSource:
    if wish.declared_zone:
        return ZoneSource.DECLARED
    return ZoneSource.NUMBER if wish.number_zones else ZoneSource.NONE
