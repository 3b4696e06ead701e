"""A carrier that speaks enough of Twilio to be handed texts, and notes when each arrived: a process of its own.

`python -m bench.carrier PORT FILE` writes a line per submission, its arrival and its number, as soon as the
request is whole. The clock is the machine's, which Postgres on the same machine reads as well.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs
from uuid import uuid4

from bench.house import House, NeverReady
from local.processes import tail, wait_until
from local.state import free_port

READY_SECONDS: Final = 20.0
ENDS_HEAD: Final = b"\r\n\r\n"


def read_clock() -> float:
    """Read the machine's clock, in seconds since 1970."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class Line(asyncio.Protocol):
    """One connection: a request at a time, answered at once."""

    def __init__(self, file: Path) -> None:
        self.book = file.open("ab", buffering=0)
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where answers go."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a TCP server's transports can write
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the book."""
        del exc
        self.book.close()

    def data_received(self, data: bytes) -> None:
        """Answer a request as soon as it is whole."""
        self.buffer += data
        head, found, body = self.buffer.partition(ENDS_HEAD)
        if not found or len(body) < _length(head):
            return
        now = read_clock()
        self.buffer = b""
        if head.startswith(b"POST "):
            to = parse_qs(body.decode())["To"][0]
            self.book.write(f"{now:.6f} {to}\n".encode())
            self._answer(b"201 Created", {"sid": f"SM{uuid4().hex}", "status": "queued", "error_code": None})
        elif b"/Messages/" in head:
            sid = head.partition(b"/Messages/")[2].partition(b".json")[0].decode()
            self._answer(b"200 OK", {"sid": sid, "status": "sent", "error_code": None})
        else:
            self._answer(b"200 OK", {"messages": []})

    def _answer(self, status: bytes, document: object) -> None:
        body = json.dumps(document).encode()
        head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\nContent-Length: %d" % (status, len(body))
        self.transport.write(head + ENDS_HEAD + body)


def _length(head: bytes) -> int:
    found = (line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return int(next(found, b"0"))


@contextmanager
def open_carrier(house: House) -> Iterator[tuple[str, Path]]:
    """Run the carrier until the block ends; give its address, and the book of arrivals."""
    port, book = free_port(), house.folder / "arrivals"
    book.write_bytes(b"")
    with house.child("carrier", [sys.executable, "-m", "bench.carrier", str(port), str(book)]):
        if not wait_until(lambda: b"listening" in house.log("carrier").read_bytes(), READY_SECONDS):
            raise NeverReady(f"the carrier did not listen:\n{tail(house.log('carrier'))}")
        yield f"http://127.0.0.1:{port}", book


def arrivals(book: Path) -> dict[str, float]:
    """Read when each number's first text arrived."""
    found: dict[str, float] = {}
    for line in book.read_text().splitlines():
        at, _, number = line.partition(" ")
        found.setdefault(number, float(at))
    return found


async def serve(port: int, book: Path) -> None:
    """Take submissions until killed."""
    server = await asyncio.get_running_loop().create_server(lambda: Line(book), "127.0.0.1", port)
    print("listening", flush=True)  # noqa: T201 - whoever started this process waits for it
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2])))
