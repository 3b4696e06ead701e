"""Who posts the receipts: when they are due, to loopback only, with Twilio's habit of trying again."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from ipaddress import ip_address
from itertools import count
from threading import Condition, Thread
from time import monotonic
from urllib.parse import parse_qsl, urlsplit
from zlib import crc32

import httpx

from simulator.book import Message, Post, Receipt
from simulator.carrier import SimulatedCarrier, wall_clock
from simulator.dialect import ReceiptCall, receipt_call
from simulator.say import say

RETRY_SPACING = 0.2
WORKERS = 8
STOP_WITHIN = 0.4
ALL_REASONS = frozenset({"ct", "rt", "4xx", "5xx"})
CLIENT_ERROR, SERVER_ERROR = 400, 500


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the fragment of a receipt URL says about trying again."""

    retries: int = 1
    reasons: frozenset[str] = frozenset({"ct"})
    connect_within: float = 5.0
    read_within: float = 15.0


def overrides_in(url: str) -> Overrides:
    """Read `#rc=3&rp=all&ct=2000&rt=5000`; what is not understood is as if it were absent, as at Twilio."""
    said = dict(parse_qsl(urlsplit(url).fragment))
    reasons = frozenset(said.get("rp", "ct").split(","))
    return Overrides(
        retries=min(_whole(said, "rc", 1), 5),
        reasons=ALL_REASONS if "all" in reasons else reasons,
        connect_within=_whole(said, "ct", 5000) / 1000,
        read_within=_whole(said, "rt", 15_000) / 1000,
    )


def _whole(said: dict[str, str], name: str, default: int) -> int:
    return int(said[name]) if said.get(name, "").isdecimal() else default


@lru_cache(maxsize=64)
def find_loopback(host: str) -> str | None:
    """Find the address of a host that is this machine and nothing else."""
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return None
    if not all(ip_address(address).is_loopback for address in found):
        return None
    return min(found, key=lambda address: (":" in address, address))


def reason_to_retry(outcome: str, http_status: int | None) -> str | None:
    """Name, in Twilio's words, why a call did not do; None when it did."""
    if outcome == "connect_failed":
        return "ct"
    if outcome in ("timed_out", "broken"):
        return "rt"
    if http_status is None or http_status < CLIENT_ERROR:
        return None
    return "4xx" if http_status < SERVER_ERROR else "5xx"


class Share(Thread):
    """One thread around a heap of due receipts."""

    def __init__(self, post: Callable[[Receipt, int], None], *, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._post = post
        self._due: list[tuple[float, int, Receipt, int]] = []
        self._order = count()
        self._changed = Condition()
        self._ended = False

    def push(self, due_at: float, receipt: Receipt, turn: int) -> None:
        """Post this when it is due."""
        with self._changed:
            heappush(self._due, (due_at, next(self._order), receipt, turn))
            self._changed.notify()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def run(self) -> None:
        """Post what is due, until told to stop."""
        while (due := self._next_due()) is not None:
            self._post(*due)

    def _next_due(self) -> tuple[Receipt, int] | None:
        with self._changed:
            while not self._ended:
                wait_for = self._due[0][0] - wall_clock() if self._due else None
                if wait_for is not None and wait_for <= 0:
                    _, _, receipt, turn = heappop(self._due)
                    return receipt, turn
                self._changed.wait(wait_for)
        return None


class Poster:
    """A few threads, each with its share of the messages, so that one message's receipts never overtake each other."""

    def __init__(self, carrier: SimulatedCarrier, *, retry_spacing: float = RETRY_SPACING, workers: int = WORKERS) -> None:
        self._carrier = carrier
        self._retry_spacing = retry_spacing
        # Neither a proxy from the environment nor a redirect may lead away from loopback.
        self._client = httpx.Client(trust_env=False, follow_redirects=False, limits=httpx.Limits(max_connections=None))
        self._shares = [Share(self.post_owed, name=f"poster-{number}") for number in range(workers)]

    def start(self) -> None:
        """Take up what is still owed, and go on."""
        owed = self._carrier.read(lambda book: book.pending())
        for receipt, turns in owed:
            self._push(receipt.due_at, receipt, turns + 1)
        for share in self._shares:
            share.start()

    def stop(self) -> None:
        """Stop; what is still owed stays owed in the journal."""
        stop_at = monotonic() + STOP_WITHIN
        for share in self._shares:
            share.stop()
        for share in self._shares:
            share.join(max(0.0, stop_at - monotonic()))
        self._client.close()

    def owe(self, receipts: Iterable[Receipt]) -> None:
        """Post these when they are due."""
        for receipt in receipts:
            self._push(receipt.due_at, receipt, 1)

    def post_owed(self, receipt: Receipt, turn: int = 1) -> None:
        """Post a receipt now, unless it was cancelled or forgotten; a failed one is tried again later."""
        message = self._carrier.find_owed(receipt)
        if message is None:
            return
        post = self.post(message, receipt, turn=turn)
        if not post.final:
            self._push(wall_clock() + self._retry_spacing * 2 ** (turn - 1), receipt, turn + 1)

    def post(self, message: Message, receipt: Receipt, *, turn: int = 1, may_retry: bool = True) -> Post:
        """Make one receipt call and write it down."""
        overrides = overrides_in(message.submission.receipt_url or "")
        outcome, http_status = self._call(receipt_call(self._carrier.account, message, receipt), overrides)
        reason = reason_to_retry(outcome, http_status)
        post = Post(
            receipt_id=receipt.id,
            sid=receipt.sid,
            to=message.submission.to,
            key=message.submission.key,
            status=receipt.status,
            idempotency_token=receipt.idempotency_token,
            signature=receipt.signature,
            at=wall_clock(),
            turn=turn,
            outcome=outcome,
            http_status=http_status,
            final=not may_retry or reason not in overrides.reasons or turn > overrides.retries,
        )
        self._carrier.note(post)
        say("receipt", sid=post.sid, status=post.status, turn=turn, outcome=outcome, http_status=http_status)
        return post

    def hand_over(self, call: ReceiptCall) -> tuple[str, int | None]:
        """Make one call with a text that somebody wrote; say how it went, and the status of the answer."""
        outcome, http_status = self._call(call, Overrides())
        say("inbound", outcome=outcome, http_status=http_status)
        return outcome, http_status

    def _call(self, call: ReceiptCall, overrides: Overrides) -> tuple[str, int | None]:
        parts = urlsplit(call.url)
        address = find_loopback(parts.hostname or "")
        if address is None:
            return "refused_host", None
        timeout = httpx.Timeout(overrides.read_within, connect=overrides.connect_within)
        try:
            # The call goes to the address that was looked at, so that no second look-up can lead elsewhere.
            url = httpx.URL(call.url).copy_with(host=address)
            headers = {**call.headers, "Host": parts.netloc.rpartition("@")[2]}
            extensions = {"sni_hostname": parts.hostname}
            response = self._client.post(url, content=call.body, headers=headers, timeout=timeout, extensions=extensions)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            return "connect_failed", None
        except httpx.TimeoutException:
            return "timed_out", None
        except (httpx.TransportError, httpx.InvalidURL):
            return "broken", None
        return "answered", response.status_code

    def _push(self, due_at: float, receipt: Receipt, turn: int) -> None:
        self._shares[crc32(receipt.sid.encode()) % len(self._shares)].push(due_at, receipt, turn)
