"""What every request and answer carries: a request id, headers that narrow what a browser may do, one log line."""

from __future__ import annotations

import re
import secrets
import time
from typing import Final

import structlog
from flask import Flask, Response, g, request

from app.ground.log import log

REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    # Browsers heed it over TLS alone, so it is harmless on a developer's machine.
    "Strict-Transport-Security": "max-age=31536000",
    "Cache-Control": "no-store",
}


def register(app: Flask) -> None:
    """Put every request of the app into its envelope."""
    app.before_request(_open)
    app.after_request(_close)
    app.teardown_request(_forget)


def _open() -> None:
    g.started = time.monotonic()
    given = request.headers.get("X-Request-Id", "")
    g.request_id = given if REQUEST_ID.fullmatch(given) else secrets.token_hex(16)
    # The rule, never the path: paths and queries may name people.
    rule = request.url_rule.rule if request.url_rule else "unmatched"
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(request_id=g.request_id, route=rule)


def _close(answer: Response) -> Response:
    answer.headers["X-Request-Id"] = g.request_id
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    duration_ms = round((time.monotonic() - g.started) * 1000, 1)
    # A method is any token that a stranger sends.
    method = request.method if request.method in {"GET", "HEAD", "POST", "OPTIONS", "PUT", "PATCH", "DELETE"} else "other"
    log.info("request", method=method, status=answer.status_code, duration_ms=duration_ms)
    return answer


def _forget(error: BaseException | None) -> None:
    del error
    structlog.contextvars.clear_contextvars()
