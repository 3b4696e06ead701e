"""Accept what other programs put into the inlet."""

from __future__ import annotations

from app.flows.inlet import take_inlet
from policy.words import Lane
from tasks.celery import celery
from tasks.doorbell import ring


@celery.task(name="inlet")  # type: ignore[untyped-decorator]  # celery is untyped
def inlet(**_: object) -> None:
    """Accept a page of the inlet and wake dispatch."""
    if take_inlet():
        for lane in Lane:
            ring(lane)
