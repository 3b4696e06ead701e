"""Sequence the feed."""

from __future__ import annotations

from app.flows.feed import sequence_feed
from tasks.celery import celery


@celery.task(name="feed")  # type: ignore[untyped-decorator]  # celery is untyped
def feed(**_: object) -> None:
    """Give new transitions their places."""
    sequence_feed()
