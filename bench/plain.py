"""Plain Celery, the counterpart of the pipeline: default settings, one message per event, a task that only counts."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from celery import Celery

QUEUES: Final = ("plain_1", "plain_2")
BROKER: Final = "BENCH_BROKER_URL"
COUNTED: Final = "BENCH_COUNTED"
"""A file that gets one octet per message: a count that costs a system call."""

celery = Celery("plain", broker=os.environ[BROKER])
celery.conf.task_ignore_result = True


@cache
def _file() -> int:
    return os.open(os.environ[COUNTED], os.O_WRONLY | os.O_APPEND)


@celery.task  # type: ignore[untyped-decorator]  # celery is untyped
def count() -> None:
    """Count one message."""
    os.write(_file(), b".")
