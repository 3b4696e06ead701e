"""The simulator on a socket: HTTP/1.1 with keep-alive, and every way of not answering."""

from __future__ import annotations

import socket
import struct
import sys
import traceback
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self, assert_never

from simulator.carrier import SimulatedCarrier
from simulator.control import PREFIX, Control
from simulator.dialect import Account
from simulator.engine import Answer, Plan, refusal
from simulator.front import Call, is_authorized
from simulator.poster import RETRY_SPACING, Poster
from simulator.rules import Respond
from simulator.say import say

LARGEST_REQUEST = 10_000_000
STOP_POLL = 0.02
JOIN_WITHIN = 0.3
# With zero seconds to linger, closing a socket resets the connection.
LINGER_NOT = struct.pack("ii", 1, 0)


class Door(ThreadingHTTPServer):
    """A listening socket, and the connections that came through it."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], *, carrier: SimulatedCarrier, poster: Poster) -> None:
        self.carrier = carrier
        self.poster = poster
        self.control = Control(carrier, poster)
        self.stopping = Event()
        self._connections: set[socket.socket] = set()
        self._connections_lock = Lock()
        super().__init__(address, Visit)

    def server_bind(self) -> None:
        """Bind without asking the name service who we are, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: socket.socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]  # TCP only
        """Remember the connection, then give it a thread."""
        with self._connections_lock:
            self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: socket.socket) -> None:  # type: ignore[override]  # this server speaks TCP only
        """Close a connection; one that does not linger is reset, and must not say goodbye first."""
        with self._connections_lock:
            self._connections.discard(request)
        if request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(LINGER_NOT)) == LINGER_NOT:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002  the signature is not ours
        """Say what broke; a client that went away is no news here."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            frame = traceback.extract_tb(error.__traceback__)[-1]
            say("broken", kind=type(error).__name__, where=f"{Path(frame.filename).name}:{frame.lineno}")

    def hang_up(self) -> None:
        """End every open connection, so that no thread waits for a client."""
        self.stopping.set()
        with self._connections_lock:
            open_now = list(self._connections)
        for connection in open_now:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # the client was quicker
                continue


class Visit(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Door

    def do_GET(self) -> None:
        """Answer a read."""
        self._visit()

    def do_POST(self) -> None:
        """Answer a send, a cancel or a control call."""
        self._visit()

    def do_PUT(self) -> None:
        """Answer other rules."""
        self._visit()

    def do_DELETE(self) -> None:
        """Answer that nothing is deleted here."""
        self._visit()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        """Say nothing: its line would hold the query string, and numbers in it."""

    def _visit(self) -> None:
        try:
            call = self._read_call()
        except EOFError:
            self.close_connection = True
            return
        if call is None:
            self.close_connection = True
            self._write(refusal(HTTPStatus.LENGTH_REQUIRED, 20001, "a Content-Length within bounds is wanted"))
        elif call.path.startswith(PREFIX):
            self._write(self.server.control.answer(call))
        else:
            self._carry_out(self.server.carrier.call(call))

    def _read_call(self) -> Call | None:
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not length.isdecimal() or int(length) > LARGEST_REQUEST:
            return None
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            raise EOFError  # whoever called is gone in the middle of it: half a request is none
        authorized = is_authorized(self.server.carrier.account, self.headers.get("Authorization"))
        return Call(self.command, path, query, body.decode(errors="replace"), authorized)

    def _carry_out(self, plan: Plan) -> None:
        self.server.poster.owe(receipt for receipt in plan.receipts if not receipt.before_answer)
        for receipt in plan.receipts:
            if receipt.before_answer:
                self.server.poster.post_owed(receipt)
        self.server.stopping.wait(plan.answer.after)
        say("answer", method=self.command, respond=plan.answer.respond, status=plan.answer.status)
        match plan.answer.respond:
            case Respond.DROP:
                self._drop()
            case Respond.CLOSE:
                self.close_connection = True
            case Respond.HANG:
                self._hang(plan.answer.hang_for)
            case Respond.TRUNCATE:
                self._truncate(plan.answer)
            case Respond.ANSWER | Respond.GARBAGE | Respond.EMPTY:
                self._write(plan.answer)
            case never:
                assert_never(never)

    def _drop(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
        self.close_connection = True

    def _hang(self, hang_for: float) -> None:
        self.close_connection = True
        if hang_for <= 0 or self.server.stopping.is_set():
            return
        self.connection.settimeout(hang_for)
        try:
            self.connection.recv(1)  # returns when the client, or our own stop, closes the connection
        except TimeoutError:
            return

    def _truncate(self, answer: Answer) -> None:
        self.close_connection = True
        self.wfile.write(self._bytes_of(answer)[: -len(answer.body) // 2])

    def _write(self, answer: Answer) -> None:
        self.wfile.write(self._bytes_of(answer))

    def _bytes_of(self, answer: Answer) -> bytes:
        phrase = HTTPStatus(answer.status).phrase if answer.status in STATUSES else "Unknown"
        headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
        if self.close_connection:
            headers.append(("Connection", "close"))
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        return f"HTTP/1.1 {answer.status} {phrase}\r\n{lines}\r\n".encode() + answer.body


STATUSES = frozenset(int(status) for status in HTTPStatus)


class Simulator:
    """A running simulator: `with Simulator() as simulator:` and call `simulator.url`."""

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        account: Account | None = None,
        seed: int | None = None,
        state: Path | None = None,
        rules: list[object] | None = None,
        retry_spacing: float = RETRY_SPACING,
    ) -> None:
        self.carrier = SimulatedCarrier(account or Account(), seed=seed, state=state)
        if rules is not None and rules != self.carrier.rules()[0]:  # a restart must not count the same rules anew
            self.carrier.use_rules(rules)
        self._poster = Poster(self.carrier, retry_spacing=retry_spacing)
        self._door = Door((host, port), carrier=self.carrier, poster=self._poster)
        self._thread = Thread(target=self._door.serve_forever, args=(STOP_POLL,), name="simulator", daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        host, port = self._door.server_address[:2]
        return f"http://{host!s}:{port}"

    def start(self) -> None:
        """Answer calls, and post what is owed."""
        _, seed = self.carrier.rules()
        say("started", url=self.url, seed=seed)  # the first line, whatever is owed from before: scripts read the address there
        self._thread.start()
        self._poster.start()

    def stop(self) -> None:
        """Hang up and stop, within a second."""
        self._door.shutdown()
        self._door.hang_up()
        self._door.server_close()
        self._thread.join(JOIN_WITHIN)
        self._poster.stop()
        self.carrier.close()
        say("stopped")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()
