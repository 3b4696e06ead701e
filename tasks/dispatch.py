"""Dispatch a lane: lease what is due and enqueue it; lower the floors once in a while."""

from __future__ import annotations

from app.flows.dispatch import dispatch as run_dispatch
from app.flows.floors import lower_floors
from policy.words import Lane
from tasks.celery import celery
from tasks.doorbell import ring, take_down
from tasks.handoff import as_message, handoff


@celery.task(name="dispatch")  # type: ignore[untyped-decorator]  # celery is untyped
def dispatch(*, lane: str, **_: object) -> None:  # **_: a newer version may say more
    """Lease a page of a lane and hand its ids to the lane's workers."""
    take_down(Lane(lane))
    pages = run_dispatch(Lane(lane))
    for page in pages:
        handoff.apply_async(
            kwargs={
                "attempt_ids": [str(i) for i in page.attempt_ids],
                "route_id": str(page.route_id),
                "lease": page.lease,
                "lane": page.lane.value,
                "terms": as_message(page.terms),
            },
            queue=page.lane.value,
        )
    if pages:
        ring(Lane(lane))  # there may be more than a page


@celery.task(name="floors")  # type: ignore[untyped-decorator]  # celery is untyped
def floors(**_: object) -> None:
    """Forget the low-water marks of dispatch."""
    lower_floors()
