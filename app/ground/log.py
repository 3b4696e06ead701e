"""Structured logs: one JSON line per thing that happened, ids and enums only."""

from __future__ import annotations

import logging
import sys

import orjson
import structlog

from app.ground.config import settings


def set_up() -> None:
    """Send structlog and the standard library's loggers to stdout as JSON lines."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendered: list[structlog.typing.Processor] = [
        # Tracebacks without locals or messages of drivers: those quote values.
        structlog.processors.ExceptionRenderer(_where_only),
        structlog.processors.JSONRenderer(serializer=_json),
    ]
    # Our own lines, two for each attempt, take the short way past the standard library.
    structlog.configure(
        processors=[*shared, *rendered],
        logger_factory=structlog.WriteLoggerFactory(file=sys.stdout),
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(settings().log_level)),
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendered],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings().log_level)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs whole URLs, and ours carry attempt keys
    for name in ("celery.worker.strategy", "celery.app.trace", "celery.beat"):
        logging.getLogger(name).setLevel(logging.WARNING)  # two lines per task, every second, that say nothing


def _json(line: object, **_: object) -> str:
    return orjson.dumps(line, default=str).decode()


def _where_only(exc_info: structlog.typing.ExcInfo) -> str:
    """Say where an exception came from and of which type it is, without its message."""
    kind, _, trace = exc_info
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{trace.tb_lineno}:{code.co_name}")
        trace = trace.tb_next
    return f"{kind.__name__} at " + " > ".join(places[-8:])


log: structlog.stdlib.BoundLogger = structlog.get_logger()
