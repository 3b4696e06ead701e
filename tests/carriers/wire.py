"""A carrier on loopback that does as it is told and keeps what arrives; and routes that lead to it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import httpx

from app.carriers.base import RouteSettings, Submission
from app.ground.ids import RouteId, new_id

RECEIPT_URL: Final = "https://notify.example.test/v1/receipts/a1"
FAR_AWAY: Final = float("inf")  # a deadline that does not pass

# For what needs no network; it also spares the making of a TLS context.
NOWHERE: Final = httpx.MockTransport(lambda _: httpx.Response(500))


def submission(body: str = "A seat opened.", *, valid_for: timedelta = timedelta(minutes=90)) -> Submission:
    return Submission(attempt_key="att-1", address="+447700900123", body=body, valid_for=valid_for)


def twilio_route(base_url: str = "http://127.0.0.1:9", receipt_url: str = RECEIPT_URL, **credentials: str) -> RouteSettings:
    return RouteSettings(
        id=RouteId(new_id()),
        carrier="twilio",
        sender="+15005550006",
        receipt_url=receipt_url,
        settings={"base_url": base_url, "account_sid": "AC00000000000000000000000000000000"},
        credentials={"auth_token": "token", **credentials},
    )


def kannel_route(
    base_url: str = "http://127.0.0.1:9",
    receipt_url: str = RECEIPT_URL,
    settings: Mapping[str, str] | None = None,
    **credentials: str,
) -> RouteSettings:
    return RouteSettings(
        id=RouteId(new_id()),
        carrier="kannel",
        sender="+15005550006",
        receipt_url=receipt_url,
        settings={"base_url": f"{base_url}/cgi-bin/sendsms", **(settings or {})},
        credentials={"username": "app", "password": "apppw", "receipt_token": "tok-1", **credentials},
    )


@dataclass(frozen=True, slots=True)
class Arrived:
    """One request as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def form(self) -> list[tuple[str, str]]:
        """Read the body as a form, sorted."""
        return sorted(parse_qsl(self.body.decode(), keep_blank_values=True))


@dataclass(slots=True)
class Peer:
    """What a carrier on loopback saw."""

    url: str
    connections: int = 0
    requests: list[Arrived] = field(default_factory=list)


@contextmanager
def peer(answer: bytes | None, *, reads: bool = True, hangs: bool = False) -> Iterator[Peer]:
    """Open a carrier that reads a request, answers with these octets and closes, or hangs until the caller goes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as last:
        last.bind(("127.0.0.1", 0))
        seen = Peer(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread = threading.Thread(target=_serve, args=(listener, seen, answer, reads, hangs, last.getsockname()))
        thread.start()
        try:
            yield seen
        finally:
            # Connections are accepted in turn: when this one is, every other has been counted.
            last.connect(listener.getsockname())
            thread.join()


def closed_port() -> str:
    """Name an address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return f"http://127.0.0.1:{port}"


def http(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Write an answer; underscores in header names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _serve(listener: socket.socket, seen: Peer, answer: bytes | None, reads: bool, hangs: bool, last: object) -> None:  # noqa: FBT001
    while True:
        connection, caller = listener.accept()
        if caller == last:
            connection.close()
            return
        seen.connections += 1
        with connection:
            if reads and (request := _read(connection)):
                seen.requests.append(request)
            if answer:
                connection.sendall(answer)
            if hangs:
                connection.recv(1)  # until the caller gives up


def _read(connection: socket.socket) -> Arrived | None:
    with connection.makefile("rb") as stream:
        try:
            first, headers = stream.readline().decode(), {}
            while (line := stream.readline().decode().strip()) != "":
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            body = stream.read(int(headers.get("content-length", "0")))
        except (OSError, UnicodeDecodeError):  # a caller who speaks TLS, or leaves
            return None
    if not first.strip():
        return None
    method, target, _ = first.split()
    return Arrived(method, urlsplit(target).path, headers, body)
