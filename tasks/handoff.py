"""Hand leased attempts to their carriers."""

from __future__ import annotations

from uuid import UUID

from app.flows.handoff import hand_off
from app.ground.ids import AttemptId, Lease
from tasks.celery import celery


@celery.task(name="handoff")  # type: ignore[untyped-decorator]  # celery is untyped
def handoff(*, attempt_ids: list[str], route_id: str, lease: int, **_: object) -> None:  # **_: a newer version may say more
    """Hand a few leased attempts to their carrier."""
    hand_off([AttemptId(UUID(i)) for i in attempt_ids], route_id=UUID(route_id), lease=Lease(lease))
