"""A client's side of the tests: who takes the receipts, and who waits for facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl

import httpx

from simulator.dialect import Account

ACCOUNT = Account()
SENDER = "+15005550006"
ANNA = "+12015550123"
BEN = "+12015550124"
CLARE = "+447700900123"
DEADLINE_SECONDS = 10.0
MESSAGES = f"{ACCOUNT.messages_path}.json"


@dataclass(frozen=True, slots=True)
class Heard:
    """One receipt call as it came in."""

    path: str
    headers: Mapping[str, str]
    form: Mapping[str, str]

    @property
    def status(self) -> str:
        """The status it reports."""
        return self.form["MessageStatus"]

    @property
    def idempotency_token(self) -> str | None:
        """What repetitions of one call have in common."""
        return self.headers.get("i-twilio-idempotency-token")


class Inbox:
    """A server that takes receipts, and answers as it is told."""

    def __init__(self, port: int = 0) -> None:
        self.heard: list[Heard] = []
        self.answers: list[int] = []
        """Statuses for the next calls; 204 when they are used up."""
        self._changed = Condition()
        self._server = _Listener(("127.0.0.1", port), self)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """What a client gives as StatusCallback."""
        return f"http://127.0.0.1:{self.port}/receipts?key=att-1"

    def take(self, heard: Heard) -> int:
        """Keep one call and give the status to answer."""
        with self._changed:
            self.heard.append(heard)
            self._changed.notify_all()
            return self.answers.pop(0) if self.answers else 204

    def wait_for(self, count: int) -> list[Heard]:
        """Wait until so many calls have come."""
        with self._changed:
            came = self._changed.wait_for(lambda: len(self.heard) >= count, DEADLINE_SECONDS)
            assert came, f"{count} receipts were due, {len(self.heard)} came"
            return list(self.heard)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], inbox: Inbox) -> None:
        self.inbox = inbox
        super().__init__(address, _Visit)


class _Visit(BaseHTTPRequestHandler):
    """One call a connection, so that none is left open when a test ends."""

    server: _Listener

    def do_POST(self) -> None:
        """Take a receipt."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.send_response(self.server.inbox.take(Heard(self.path, headers, dict(parse_qsl(body)))))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Say nothing."""


def send(client: httpx.Client, to: str = ANNA, body: str = "Seat 12 is yours", **more: str) -> httpx.Response:
    """Send one message."""
    return client.post(MESSAGES, data={"To": to, "From": SENDER, "Body": body, **more})


def poll(client: httpx.Client, sid: str) -> dict[str, Any]:
    """Ask what became of a message."""
    answer: dict[str, Any] = client.get(f"{ACCOUNT.messages_path}/{sid}.json").raise_for_status().json()
    return answer


def use_rule(client: httpx.Client, then: object, **match: object) -> None:
    """Put one rule in force."""
    client.put("/_sim/rules", json={"rules": [{"match": match, "then": then}]}).raise_for_status()


def accepted(client: httpx.Client, to: str = ANNA) -> list[dict[str, Any]]:
    """Ask the book what was accepted for a number."""
    rows: list[dict[str, Any]] = client.get("/_sim/accepted", params={"to": to}).raise_for_status().json()
    return rows


def posts(client: httpx.Client, to: str = ANNA) -> list[dict[str, Any]]:
    """Ask the book which receipt calls were made for a number."""
    rows: list[dict[str, Any]] = client.get("/_sim/receipts", params={"to": to}).raise_for_status().json()
    return rows


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for a fact that only asking can tell."""
    turn = Event()
    for _ in range(int(DEADLINE_SECONDS / 0.01)):
        if is_so():
            return
        turn.wait(0.01)
    raise AssertionError("the deadline passed")
