"""What decisions about a page look at: policy in force, routes, suppressions, gates; read set-based."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Rows, Statement
from app.ground.errors import DaybookError
from app.ledger.policies import InForce, read_policies
from app.ledger.spend import TODAY
from app.people import consents as people_consents
from app.people import preferences as people_preferences
from app.people import suppress as people_suppress
from policy.facts import Consent, Contacted, Preference, Suppression
from policy.spending import day_began
from policy.words import Category

# Rows are immutable: an open end is closed by the start of the version that follows.
POLICIES = """
SELECT * FROM (
    SELECT v.id, v.tenant_id, v.effective_from,
           coalesce(v.effective_until, (SELECT min(n.effective_from) FROM policy_version n
                                        WHERE n.tenant_id = v.tenant_id AND n.effective_from > v.effective_from)) AS ends_at
    FROM policy_version v WHERE v.tenant_id = ANY(%(tenants)s::uuid[]) AND v.effective_from <= %(now)s
) started
WHERE ends_at IS NULL OR ends_at > %(now)s
ORDER BY effective_from DESC
"""

ROUTES = """
SELECT id, tenant_id, channel, countries, priority, settings ->> 'sender_type' AS sender_type FROM route
WHERE tenant_id = ANY(%(tenants)s::uuid[]) ORDER BY priority, id
"""

GATES = """
SELECT tenant_id, address_hash, slots, suppressed_at FROM gate
WHERE (tenant_id, address_hash) IN (SELECT * FROM unnest(%(gate_tenants)s::uuid[], %(hashes)s::bytea[]))
"""

PAUSES = """
SELECT tenant_id, route_id, lane, category, country, cause FROM pause
WHERE ended_at IS NULL AND tenant_id = ANY(%(tenants)s::uuid[])
"""

GateKey = tuple[UUID, bytes]

CONTACTED: Final = "contacted"
"""Under this name, beside the categories, a gate's slots keep the last handoffs, where the policy has caps."""


class PoliciesOverlap(DaybookError):
    """Two policy versions of a tenant are in force at once: publishing must have been by-passed."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The facts around a page of intents at one moment."""

    policies: Mapping[UUID, InForce]
    routes: Mapping[UUID, Sequence[Any]]
    suppressions: Mapping[GateKey, Sequence[Any]]
    gates: Mapping[GateKey, Any]
    pauses: Mapping[UUID, Sequence[Any]] = field(default_factory=dict)
    consents: Mapping[GateKey, Sequence[Any]] = field(default_factory=dict)
    preferences: Mapping[GateKey, Sequence[Any]] = field(default_factory=dict)
    spent: Mapping[tuple[UUID, str], Decimal] = field(default_factory=dict)
    """Today, by tenant and currency, where it is counted."""

    def route_for(self, tenant_id: UUID, *, channel: str, country: str | None) -> Any | None:  # noqa: ANN401 - a row of ROUTES
        """Choose the first route by priority that serves this channel and country."""
        for route in self.routes.get(tenant_id, ()):
            if route.channel == channel and (not route.countries or country in route.countries):
                return route
        return None

    def route_of(self, tenant_id: UUID, route_id: UUID | None) -> Any | None:  # noqa: ANN401 - a row of ROUTES
        """Find a tenant's route by its id."""
        return next((route for route in self.routes.get(tenant_id, ()) if route.id == route_id), None)

    def suppressions_of(self, gate: GateKey, *, channel: str) -> tuple[Suppression, ...]:
        """Give the standing suppressions of an address on a channel."""
        return tuple(
            Suppression(str(row.id), _category(row), row.source, row.at, everything=row.everything)
            for row in self.suppressions.get(gate, ())
            if row.channel == channel
        )

    def consents_of(self, gate: GateKey, *, channel: str, category: str) -> tuple[Consent, ...]:
        """Give what was agreed to, or withdrawn, about this category of an address on a channel."""
        return tuple(
            Consent(str(row.id), row.kind, _category(row), row.captured_at, row.expires_at, row.wording, row.withdrawn)
            for row in self.consents.get(gate, ())
            if row.channel == channel and row.category in {None, category}
        )

    def preferences_of(self, gate: GateKey, *, channel: str, category: str) -> tuple[Preference, ...]:
        """Give what was asked for about this category at an address on a channel."""
        return tuple(
            Preference(str(row.id), _category(row), row.wanted, row.at)
            for row in self.preferences.get(gate, ())
            if row.channel == channel and row.category in {None, category}
        )

    def contacted(self, gate: GateKey, *, business_key: str) -> tuple[Contacted, ...]:
        """Give the handoffs to an address that the gate remembers, but those of the same business key: they are one message."""
        row = self.gates.get(gate)
        told = row.slots.get(CONTACTED, ()) if row is not None else ()
        subject = business_key.rpartition("/")[0]
        return tuple(
            Contacted(
                datetime.fromisoformat(each["at"]),
                Category(each["category"]),
                same_subject=each["business_key"].rpartition("/")[0] == subject,
            )
            for each in told
            if each["business_key"] != business_key
        )

    def is_paused(self, tenant_id: UUID, *, lane: str, category: str, country: str | None) -> bool:
        """Say whether an operator's brake holds this lane, category or country of the tenant; routes apart."""
        return any(
            pause.route_id is None
            and pause.lane in {None, lane}
            and pause.category in {None, category}
            and pause.country in {None, country}
            for pause in self.pauses.get(tenant_id, ())
        )

    def is_stopped(self, tenant_id: UUID, route_id: UUID, *, country: str | None) -> bool:
        """Say whether the route is stopped, everywhere or in this country."""
        return any(pause.route_id == route_id and pause.country in {None, country} for pause in self.pauses.get(tenant_id, ()))


def statements(tenants: Iterable[UUID], gates: Iterable[GateKey], *, now: datetime) -> list[Statement]:
    """Give the reads that `surroundings_of` takes the rows of, for one round trip."""
    keys = sorted(set(gates))
    tenant = {"tenants": sorted(set(tenants)), "now": now}
    gate = {"gate_tenants": [k[0] for k in keys], "hashes": [k[1] for k in keys]}
    # Gates before suppressions: each statement has its own snapshot, and a suppression that commits
    # between them is then seen without its mark on the gate, never the mark without it.
    # So it is with consents that are withdrawn, and with preferences.
    people = [(people_suppress.STANDING, gate), (people_consents.STANDING, gate), (people_preferences.STANDING, gate)]
    spent = (TODAY, {"tenants": tenant["tenants"], "day": day_began(now)})
    return [(POLICIES, tenant), (ROUTES, tenant), (GATES, gate), *people, (PAUSES, tenant), spent]


def surroundings_of(session: Session, results: Sequence[Rows]) -> Surroundings:
    """Arrange the rows of `statements`; PoliciesOverlap when two versions are in force."""
    policies, routes, gates, suppressions, consents, preferences, pauses, spent = results
    documents = read_policies(session, [row.id for row in policies])
    in_force: dict[UUID, InForce] = {}
    for row in policies:
        if row.tenant_id in in_force:
            label = documents[row.id].label
            raise PoliciesOverlap(f"tenant {row.tenant_id} has two policy versions in force: {label} is one")
        in_force[row.tenant_id] = documents[row.id].until(row.ends_at)
    return Surroundings(
        policies=in_force,
        routes=grouped(routes, lambda r: r.tenant_id),
        suppressions=grouped(suppressions, gate_of),
        consents=grouped(consents, gate_of),
        preferences=grouped(preferences, gate_of),
        gates={(g.tenant_id, bytes(g.address_hash)): g for g in gates},
        pauses=grouped(pauses, lambda p: p.tenant_id),
        spent={(row.tenant_id, row.currency): row.amount for row in spent},
    )


def gate_of(row: Any) -> GateKey:  # noqa: ANN401 - a row that hangs on an address
    """Name the gate of a row."""
    return row.tenant_id, bytes(row.address_hash)


def _category(row: Any) -> Category | None:  # noqa: ANN401 - a row with a category
    return None if row.category is None else Category(row.category)


def grouped(found: Rows, key: Any) -> dict[Any, list[Any]]:  # noqa: ANN401 - a key function of any row
    """Sort rows under what `key` finds in them."""
    groups: dict[Any, list[Any]] = {}
    for row in found:
        groups.setdefault(key(row), []).append(row)
    return groups
