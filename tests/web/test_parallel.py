"""Many at once, over real HTTP: one key is one event."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from flask import Flask
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.making import ask, together
from tests.web.calling import Api, books_of

CALLERS = 200


class Quiet(WSGIRequestHandler):
    """Serves without its own access log."""

    def log_request(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(app: Flask) -> Iterator[str]:
    """Serve the app from real threads on a real port."""
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_two_hundred_posts_of_one_key_make_one_event(web_app: Flask, api: Api) -> None:
    with served(web_app) as url:

        def post() -> tuple[int, dict[str, Any]]:
            headers = {"Authorization": f"Bearer {api.key}", "Idempotency-Key": "k-1"}
            answer = httpx.post(f"{url}/v1/events", json=ask(), headers=headers, timeout=60, trust_env=False)
            return answer.status_code, answer.json()

        answers = together(*[post] * CALLERS)

    assert Counter(status for status, _ in answers) == {202: 1, 200: CALLERS - 1}
    assert {body.pop("duplicate") for status, body in answers if status == 200} == {True}
    assert [body.pop("duplicate") for status, body in answers if status == 202] == [False]
    assert all(body == answers[0][1] for _, body in answers)
    written = books_of(api.engine)
    assert [written[table] for table in ("event", "intent", "attempt", "outbox", "person_key", "contact")] == [1] * 6
