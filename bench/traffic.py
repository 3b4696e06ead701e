"""Load over HTTP that costs little itself: whole requests, written before the clock starts, over a few plain sockets."""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from app.ground.errors import DaybookError
from bench.house import stopwatch

PATIENCE_SECONDS: Final = 60.0
CHUNK: Final = 65_536


class BadAnswer(DaybookError):
    """The web process answered otherwise than the figure needs."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """What came of a run: how long it took, and how often each status was the answer."""

    seconds: float
    statuses: Mapping[int, int]
    bodies: Sequence[bytes] = ()

    def only(self, status: int) -> Traffic:
        """Give itself when every answer had this status; BadAnswer otherwise."""
        if set(self.statuses) != {status}:
            raise BadAnswer(f"expected {status} only, got {dict(self.statuses)}")
        return self


def request(method: str, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Write one request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *(f"{n}: {v}" for n, v in headers.items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def post(url: str, requests: Sequence[bytes], *, connections: int, keep_bodies: bool = False) -> Traffic:
    """Send all requests over so many connections, each busy with one at a time."""
    waiting = iter(requests)
    address = (urlsplit(url).hostname or "", urlsplit(url).port or 80)
    lines = [_Line(socket.create_connection(address, timeout=PATIENCE_SECONDS)) for _ in range(connections)]
    statuses: Counter[int] = Counter()
    bodies: list[bytes] = []
    started = stopwatch()
    with selectors.DefaultSelector() as selector:
        busy = sum(_start(line, waiting, selector) for line in lines)
        while busy:
            ready = selector.select(timeout=PATIENCE_SECONDS)
            if not ready:
                raise BadAnswer(f"no answer within {PATIENCE_SECONDS:.0f} seconds")
            for key, _ in ready:
                line: _Line = key.data
                answer = line.read()
                if answer is None:
                    continue
                statuses[answer[0]] += 1
                if keep_bodies:
                    bodies.append(answer[1])
                busy -= not line.send(waiting)
    seconds = stopwatch() - started
    for line in lines:
        line.socket.close()
    return Traffic(seconds, dict(statuses), bodies)


class Paced:
    """Requests at moments of their own, whatever became of those before: one that waits holds back none."""

    def __init__(self, url: str, *, connections: int) -> None:
        address = (urlsplit(url).hostname or "", urlsplit(url).port or 80)
        self.idle = [_Line(socket.create_connection(address, timeout=PATIENCE_SECONDS)) for _ in range(connections)]
        self.selector = selectors.DefaultSelector()
        for line in self.idle:
            self.selector.register(line.socket, selectors.EVENT_READ, line)
        self.busy = 0
        self.status = 0

    def close(self) -> None:
        """Close every connection."""
        for key in list(self.selector.get_map().values()):
            key.data.socket.close()
        self.selector.close()

    def post(self, requests: Sequence[bytes], gaps: Sequence[float], *, status: int) -> list[float]:
        """Send each request so long after the one before; give when each was written, on the machine's clock."""
        self.status = status
        sent_at: list[float] = []
        due = stopwatch()
        for request_, gap in zip(requests, gaps, strict=True):
            due += gap
            while (left := due - stopwatch()) > 0 or not self.idle:
                self._listen(left if self.idle else PATIENCE_SECONDS)
            line = self.idle.pop(0)
            sent_at.append(time.clock_gettime(time.CLOCK_REALTIME))
            line.send(iter([request_]))
            self.busy += 1
        while self.busy:
            self._listen(PATIENCE_SECONDS)
        return sent_at

    def _listen(self, seconds: float) -> None:
        ready = self.selector.select(timeout=seconds)
        if not ready and seconds == PATIENCE_SECONDS:
            raise BadAnswer(f"no answer within {PATIENCE_SECONDS:.0f} seconds")
        for key, _ in ready:
            line: _Line = key.data
            answer = line.read()
            if answer is None:
                continue
            if answer[0] != self.status:
                raise BadAnswer(f"expected {self.status}, got {answer[0]}: {answer[1][:200]!r}")
            self.idle.append(line)
            self.busy -= 1


def _start(line: _Line, waiting: Iterator[bytes], selector: selectors.BaseSelector) -> bool:
    if not line.send(waiting):
        return False
    selector.register(line.socket, selectors.EVENT_READ, line)
    return True


@dataclass(slots=True)
class _Line:
    """One connection and what has been read of the answer it waits for."""

    socket: socket.socket
    buffer: bytearray = field(default_factory=bytearray)

    def send(self, waiting: Iterator[bytes]) -> bool:
        """Send the next request; False when there is none left."""
        following = next(waiting, None)
        if following is not None:
            self.socket.sendall(following)
        return following is not None

    def read(self) -> tuple[int, bytes] | None:
        """Read what came; the status and body once the answer is whole."""
        chunk = self.socket.recv(CHUNK)
        if not chunk:
            raise BadAnswer("the web process closed a connection")
        self.buffer += chunk
        head, found, body = bytes(self.buffer).partition(b"\r\n\r\n")
        if not found:
            return None
        lines = head.decode("latin-1").lower().split("\r\n")
        length = next((int(line.partition(":")[2]) for line in lines if line.startswith("content-length:")), 0)
        if len(body) < length:
            return None
        self.buffer.clear()
        return int(lines[0].split(" ", 2)[1]), body
