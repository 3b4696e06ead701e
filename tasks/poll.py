"""Ask carriers about attempts in doubt."""

from __future__ import annotations

from app.flows.poll import poll_page
from tasks.celery import celery


@celery.task(name="poll")  # type: ignore[untyped-decorator]  # celery is untyped
def poll(**_: object) -> None:
    """Ask about one page of attempts whose next check is due."""
    poll_page()
