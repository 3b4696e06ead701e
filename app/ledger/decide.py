"""Put the facts of an intent together and ask the policy in force."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.metadata import version
from uuid import UUID

from app.ledger.policies import InForce
from app.ledger.surroundings import Surroundings
from app.people.contacts import PHONENUMBERS_VERSION
from policy.decide import Decision, decide
from policy.facts import Facts, ZoneSource
from policy.gate import Slot
from policy.words import Category, Channel


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


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision, the version that made it, the route it was made for, and the gate's mark it saw."""

    decision: Decision
    policy: InForce | None
    route_id: UUID | None
    gate_seen_at: datetime | None


@cache
def tzdata_version() -> str:
    """Name the zone data in use: it is evidence, since it changes answers."""
    return version("tzdata")


def slot_of(slots: dict[str, dict[str, str]], category: str) -> Slot | None:
    """Read a category's slot out of a gate row."""
    slot = slots.get(category)
    return None if slot is None else Slot(slot["business_key"], datetime.fromisoformat(slot["until"]))


def decide_wish(wish: Wish, around: Surroundings, *, now: datetime) -> Decided:
    """Decide one intent under the policy version in force at `now`."""
    policy = around.policies.get(wish.tenant_id)
    route_id = around.route_for(wish.tenant_id, channel=wish.channel, country=wish.country)
    gate_key = (wish.tenant_id, wish.gate_hash)
    gate = around.gates.get(gate_key)
    slot = slot_of(gate.slots, wish.category) if gate is not None else None
    held = slot is not None and slot.business_key != wish.business_key and slot.until > now
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
        route_available=route_id is not None,
        tzdata_version=tzdata_version(),
        phonenumbers_version=PHONENUMBERS_VERSION,
    )
    document = policy.document if policy is not None else None
    return Decided(decide(document, facts, now=now), policy, route_id, gate.suppressed_at if gate is not None else None)


def _zone_source(wish: Wish) -> ZoneSource:
    if wish.declared_zone:
        return ZoneSource.DECLARED
    return ZoneSource.NUMBER if wish.number_zones else ZoneSource.NONE
