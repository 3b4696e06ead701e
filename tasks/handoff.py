"""Hand leased attempts to their carriers."""

from __future__ import annotations

from uuid import UUID

from app.flows.handoff import hand_off
from app.ground.ids import AttemptId, Lease
from policy.words import Lane
from tasks.celery import celery
from tasks.doorbell import ring


@celery.task(name="handoff")  # type: ignore[untyped-decorator]  # celery is untyped
def handoff(*, attempt_ids: list[str], route_id: str, lease: int, lane: str | None = None, **_: object) -> None:
    """Hand a few leased attempts to their carrier, and wake dispatch: there is room for more."""
    # **_: a newer version may say more
    hand_off([AttemptId(UUID(i)) for i in attempt_ids], route_id=UUID(route_id), lease=Lease(lease))
    if lane is not None:
        ring(Lane(lane))
