"""Plain Celery, the counterpart of the pipeline: default settings, one message per event, a task that only counts."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from celery import Celery

QUEUES: Final = ("plain_1", "plain_2")
COUNTED: Final = "BENCH_COUNTED"
"""A file that gets one octet per message: a count that costs a system call."""

# Its broker's URL is BROKER_URL, as Celery's own command line reads it.
celery = Celery("plain", task_ignore_result=True)


@cache
def _file() -> int:
    return os.open(os.environ[COUNTED], os.O_WRONLY | os.O_APPEND)


@celery.task  # type: ignore[untyped-decorator]  # celery is untyped
def count() -> None:
    """Count one message."""
    os.write(_file(), b".")
