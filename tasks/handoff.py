"""Hand leased attempts to their carriers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from app.flows.handoff import hand_off
from app.ground.ids import AttemptId, Lease
from app.limits import Ask, Terms
from policy.rates import Rate
from policy.words import Lane
from tasks.celery import celery
from tasks.doorbell import ring


@celery.task(name="handoff")  # type: ignore[untyped-decorator]  # celery is untyped
def handoff(
    *,
    attempt_ids: list[str],
    route_id: str,
    lease: int,
    lane: str | None = None,
    terms: Mapping[str, Any] | None = None,
    **_: object,  # a newer version may say more
) -> None:
    """Hand a few leased attempts to their carrier, and wake dispatch: there is room for more."""
    hand_off(
        [AttemptId(UUID(i)) for i in attempt_ids], route_id=UUID(route_id), lease=Lease(lease), terms=_read(lane, terms or {})
    )
    if lane is not None:
        ring(Lane(lane))


def as_message(terms: Terms) -> dict[str, Any]:
    """Write what a page brings along: numbers, words and keyed hashes."""
    rate = terms.tenant_rate
    asks = {str(i): [ask.cost, ask.person, ask.category, ask.holder] for i, ask in terms.asks.items()}
    return {"tenant_rate": [rate.per_second, rate.burst] if rate else None, "asks": asks}


def _read(lane: str | None, told: Mapping[str, Any]) -> Terms:
    rate = told.get("tenant_rate")
    asks = {UUID(i): Ask(*ask) for i, ask in told.get("asks", {}).items()}
    return Terms(Lane(lane) if lane else None, Rate(*rate) if rate else None, asks)
