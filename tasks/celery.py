"""The Celery app: lanes as queues, late acks, ids only, and the beat schedule. Nothing here is the truth."""

from __future__ import annotations

from typing import Any, Final

from celery import Celery
from celery.signals import setup_logging, worker_process_init, worker_ready
from kombu.entity import Queue

from app.ground.config import settings
from app.ground.db import forget_engine
from app.ground.heap import settle_heap
from app.ground.log import set_up
from policy.words import Lane

SWEEPS: Final = "sweeps"
"""The queue of periodic tasks and doorbells."""

# How often a worker looks for messages that nobody acknowledged in time. By default that time is longer
# than any task may take: a handoff page ends within H, a sweep within its time-outs. What a killed
# worker held comes back after it; the outbox's leases are the truth meanwhile.
RESTORE_EVERY_SECONDS: Final = 10

# A message is thrown away when the receiver's clock is past what the sender's said: so that sweeps do not
# pile up for a day while no worker runs, and far longer than two clocks may differ.
EXPIRES_SECONDS: Final = 900

# What runs when, in seconds. Each sweep is idempotent and finds its own work, so two beats are
# harmless, and a late or lost one costs only time.
SCHEDULE: Final[dict[str, tuple[str, float, dict[str, str]]]] = {
    "dispatch-otp": ("dispatch", 1.0, {"lane": Lane.OTP.value}),
    "dispatch-urgent": ("dispatch", 1.0, {"lane": Lane.URGENT.value}),
    "dispatch-bulk": ("dispatch", 1.0, {"lane": Lane.BULK.value}),
    "inlet": ("inlet", 1.0, {}),
    "feed": ("feed", 1.0, {}),
    "poll": ("poll", 1.0, {}),
    "carrier_cancel": ("carrier_cancel", 1.0, {}),
    "reconcile": ("reconcile", 2.0, {}),
    "heartbeat": ("heartbeat", 2.0, {}),
    "floors": ("floors", 60.0, {}),
}

TASKS: Final = ("dispatch", "handoff", "poll", "carrier_cancel", "reconcile", "inlet", "feed", "heartbeat")

celery = Celery("daybook", include=[f"tasks.{module}" for module in TASKS])
celery.conf.update(
    broker_url=settings().broker_url,
    broker_connection_retry_on_startup=True,
    broker_connection_timeout=3,
    broker_connection_max_retries=None,
    broker_transport_options={
        "visibility_timeout": settings().visibility_seconds,
        "unacked_restore_interval": min(RESTORE_EVERY_SECONDS, settings().visibility_seconds),
        "unacked_restore_throttle": 1,
        "socket_timeout": 30,
        "socket_connect_timeout": 3,
        "socket_keepalive": True,
    },
    task_queues=[Queue(name) for name in (*Lane, SWEEPS)],  # type: ignore[no-untyped-call]  # kombu is untyped
    task_default_queue=SWEEPS,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=20,
    worker_enable_remote_control=True,
    enable_utc=True,
    timezone="UTC",
    beat_schedule={
        name: {"task": task, "schedule": every, "kwargs": kwargs, "options": {"queue": SWEEPS, "expires": EXPIRES_SECONDS}}
        for name, (task, every, kwargs) in SCHEDULE.items()
    },
)


@setup_logging.connect  # type: ignore[untyped-decorator]  # celery is untyped
def _log(**_: Any) -> None:  # noqa: ANN401 - celery's signal
    set_up()


@worker_process_init.connect  # type: ignore[untyped-decorator]  # celery is untyped
def _own_connections(**_: Any) -> None:  # noqa: ANN401 - celery's signal
    forget_engine()
    settle_heap()


@worker_ready.connect  # type: ignore[untyped-decorator]  # celery is untyped
def _watch_beat(**_: Any) -> None:  # noqa: ANN401 - celery's signal
    from tasks.heartbeat import watch  # noqa: PLC0415 - that module needs this one's app

    watch()
