"""The heartbeat, and the watch in each worker's parent process that enqueues the sweeps when beat is silent."""

from __future__ import annotations

import threading
from typing import Final

from kombu.exceptions import OperationalError
from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.flows.heartbeat import beat, is_silent
from app.ground.db import CommitUnknown, DatabaseAway
from app.ground.log import log
from tasks.celery import EXPIRES_SECONDS, SCHEDULE, SWEEPS, celery

LOOK_EVERY_SECONDS: Final = 3.0


@celery.task(name="heartbeat")  # type: ignore[untyped-decorator]  # celery is untyped
def heartbeat(**_: object) -> None:
    """Note that beat's tasks reach a worker."""
    beat()


def watch() -> None:
    """Start the watch; it ends with the process."""
    threading.Thread(target=_watch, name="beat-watch", daemon=True).start()


def _watch() -> None:
    stop = threading.Event()  # never set: only for waiting
    while not stop.wait(LOOK_EVERY_SECONDS):
        try:
            if is_silent():
                log.warning("beat_silent")
                enqueue_sweeps()
        except (DatabaseAway, CommitUnknown, DBAPIError, PsycopgError, OperationalError) as error:
            log.warning("beat_watch_failed", cause=type(error).__name__)


def enqueue_sweeps() -> None:
    """Enqueue every sweep once, as beat would; the heartbeat alone stays beat's to give."""
    for task, _, kwargs in SCHEDULE.values():
        if task != "heartbeat":
            celery.send_task(task, kwargs=kwargs, queue=SWEEPS, retry=False, expires=EXPIRES_SECONDS)
