"""The doorbell: a coalesced nudge to dispatch a lane, rung after a commit. Losing one costs a second."""

from __future__ import annotations

from typing import Final

import redis
from kombu.exceptions import OperationalError

from app.ground.log import log
from app.limits import client
from policy.words import Lane

# How long a nudge stands for those that follow it. The dispatch that it woke takes it down before
# it reads, so whoever commits later rings again.
STANDS_FOR_MS: Final = 1000


def ring(lane: Lane) -> None:
    """Wake the dispatch of a lane, unless somebody just did; beat comes by anyway."""
    from tasks.celery import EXPIRES_SECONDS, SWEEPS, celery  # noqa: PLC0415 - the web edge loads Celery only when it rings

    try:
        if client().set(_bell(lane), 1, nx=True, px=STANDS_FOR_MS):
            celery.send_task("dispatch", kwargs={"lane": lane.value}, queue=SWEEPS, retry=False, expires=EXPIRES_SECONDS)
    except (redis.RedisError, OperationalError) as error:
        log.warning("doorbell_lost", lane=lane, cause=type(error).__name__)


def take_down(lane: Lane) -> None:
    """Take the nudge down before reading what is due."""
    try:
        client().delete(_bell(lane))
    except redis.RedisError as error:
        log.warning("doorbell_lost", lane=lane, cause=type(error).__name__)


def _bell(lane: Lane) -> str:
    return f"daybook:bell:{lane}"
