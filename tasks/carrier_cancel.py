"""Ask carriers not to deliver what was taken back."""

from __future__ import annotations

from app.flows.carrier_cancel import ask_to_cancel
from tasks.celery import celery


@celery.task(name="carrier_cancel")  # type: ignore[untyped-decorator]  # celery is untyped
def carrier_cancel(**_: object) -> None:
    """Ask about one page of what is due."""
    ask_to_cancel()
