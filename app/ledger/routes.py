"""Routes as the flows use them: settings with open credentials, and the times that govern doubt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy.orm import Session

from app.carriers.base import Capabilities, RouteSettings
from app.carriers.registry import CARRIERS
from app.ground.db import rows
from app.ground.ids import RouteId
from app.people.vault import unwrap
from policy.rates import CountedIn, Rate

READ = """
SELECT id, tenant_id, name, channel, carrier, sender, receipt_url, settings, sealed_credentials, rate_per_second, burst_count
FROM route WHERE id = ANY(%(ids)s::uuid[])
"""

FIRST_CHECK_AFTER: Final = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class Route:
    """A configured way to a carrier, ready to be used in this process."""

    id: UUID
    tenant_id: UUID
    name: str
    carrier: str
    settings: RouteSettings
    capabilities: Capabilities
    rate: Rate
    counted_in: CountedIn
    horizon_for: timedelta
    settling_for: timedelta
    first_check_after: timedelta
    confirms_opt_out: bool
    """The carrier itself answers a STOP that it understands."""


# Routes are immutable, so what one process has read stays true.
_CACHE: dict[UUID, Route] = {}


def known_route(route_id: UUID) -> Route | None:
    """Give a route that this process has read before."""
    return _CACHE.get(route_id)


def read_routes(session: Session, ids: Iterable[UUID]) -> Mapping[UUID, Route]:
    """Read these routes; each is read from the database once per process."""
    wanted = set(ids)
    missing = sorted(wanted - _CACHE.keys())
    if missing:
        _CACHE.update({row.id: _route(row) for row in rows(session, READ, ids=missing)})
    return {i: _CACHE[i] for i in wanted if i in _CACHE}


def _route(row: Any) -> Route:  # noqa: ANN401 - a row of READ
    capabilities = CARRIERS[row.carrier].capabilities
    settings: dict[str, str] = row.settings
    return Route(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        carrier=row.carrier,
        settings=RouteSettings(
            id=RouteId(row.id),
            carrier=row.carrier,
            sender=row.sender,
            receipt_url=row.receipt_url,
            settings=settings,
            credentials=orjson.loads(unwrap(bytes(row.sealed_credentials))),
        ),
        capabilities=capabilities,
        rate=Rate(row.rate_per_second, row.burst_count),
        counted_in=CountedIn(settings.get("counted_in", CountedIn.MESSAGES)),
        horizon_for=_for(settings, "horizon_seconds", capabilities.horizon_for),
        settling_for=_for(settings, "settling_seconds", capabilities.settling_for),
        first_check_after=_for(settings, "first_check_seconds", FIRST_CHECK_AFTER),
        confirms_opt_out=_confirms(settings, capabilities),
    )


def _confirms(settings: Mapping[str, str], capabilities: Capabilities) -> bool:
    """Say who answers a STOP: the carrier where the route says so, or where it says nothing and the carrier usually does."""
    named = settings.get("opt_out_confirmation")
    return capabilities.confirms_opt_out if named is None else named == "carrier"


def _for(settings: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """Take a route's own time where it names one: a simulator settles faster than a carrier."""
    return timedelta(seconds=float(settings[name])) if name in settings else default
