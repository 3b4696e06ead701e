"""Call the API as its users do, and read what it answers."""

from __future__ import annotations

import io
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import structlog
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine, text
from werkzeug.serving import WSGIRequestHandler, make_server
from werkzeug.test import TestResponse

from app.desk.configure import SCOPES, add_key
from app.ground.log import set_up
from tests.making import House, ask, clock, committing, make_house
from web.problems import MEDIA_TYPE, PROBLEMS


@dataclass(frozen=True, slots=True)
class Api:
    """One tenant's way in."""

    client: FlaskClient
    engine: Engine
    house: House
    key: str = field(repr=False)

    def get(self, path: str, **headers: str) -> TestResponse:
        """Get something with the tenant's key."""
        return self.client.get(path, headers=self._with_key(headers))

    def post(self, path: str, body: object = None, **headers: str) -> TestResponse:
        """Post a document with the tenant's key; underscores in header names stand for hyphens."""
        return self.client.post(path, json=body, headers=self._with_key(headers))

    def put(self, path: str, body: object = None) -> TestResponse:
        """Put a document with the tenant's key."""
        return self.client.put(path, json=body, headers=self._with_key({}))

    def post_bytes(self, path: str, body: bytes, *, content_type: str = "application/json") -> TestResponse:
        """Post exactly these bytes with the tenant's key."""
        return self.client.post(path, data=body, content_type=content_type, headers=self._with_key({}))

    def post_event(self, **changes: Any) -> TestResponse:
        """Post a good event with some fields changed."""
        return self.post("/v1/events", ask(**changes))

    def accepted(self, **changes: Any) -> dict[str, Any]:
        """Post a good event and give the answer's body."""
        answer = self.post_event(**changes)
        assert answer.status_code in {200, 202}, answer.get_data(as_text=True)
        return body_of(answer)

    def _with_key(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} | {name.replace("_", "-"): value for name, value in headers.items()}


def make_api(
    client: FlaskClient,
    engine: Engine,
    *,
    carrier: str = "twilio",
    settings: Mapping[str, str] | None = None,
    scopes: tuple[str, ...] = SCOPES,
) -> Api:
    """Make a tenant with a route, a template, a policy and a key."""
    with committing(engine) as session:
        now = clock(session)
        house = make_house(session, carrier=carrier, settings=settings, now=now)
        key = add_key(session, tenant_id=house.tenant_id, name="test", scopes=scopes, now=now)
    return Api(client, engine, house, key)


def make_key(api: Api, *scopes: str) -> Api:
    """Give the same tenant another key, with these scopes."""
    with committing(api.engine) as session:
        key = add_key(session, tenant_id=api.house.tenant_id, name="other", scopes=scopes, now=clock(session))
    return Api(api.client, api.engine, api.house, key)


def body_of(answer: TestResponse) -> dict[str, Any]:
    """Read an answer's document."""
    body: dict[str, Any] = answer.get_json(force=True)
    return body


def problem_of(answer: TestResponse) -> dict[str, Any]:
    """Read a problem, having seen that it is one as RFC 9457 and the catalogue have it."""
    body = body_of(answer)
    assert answer.content_type == MEDIA_TYPE
    assert set(body) == {"type", "title", "status", "detail", "code", "errors", "request_id"}
    assert PROBLEMS[body["code"]].status == body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["X-Request-Id"]
    assert all(set(error) == {"code", "detail", "pointer"} for error in body["errors"])
    return body


def code_of(answer: TestResponse) -> tuple[int, str]:
    """Give a problem's status and code."""
    problem = problem_of(answer)
    return problem["status"], problem["code"]


WRITTEN = ("event", "intent", "attempt", "decision", "transition", "outbox", "feed_pending", "person_key", "contact", "joining")


def books_of(engine: Engine) -> dict[str, int]:
    """Count the rows of every table that an acceptance writes to."""
    with engine.connect() as connection:
        return {table: int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()) for table in WRITTEN}


def id_of(body: Mapping[str, Any]) -> UUID:
    """Read an event's id."""
    return UUID(body["event_id"])


@contextmanager
def production_log() -> Iterator[io.StringIO]:
    """Log as in production, to be read; afterwards the test run's own logging is back."""
    root, out = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    with redirect_stdout(out):
        set_up()
    try:
        yield out
    finally:
        root.handlers, root.level = handlers, level
        structlog.reset_defaults()


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
