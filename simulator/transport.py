"""The simulator without sockets: the same engine behind `httpx`, on a clock that only tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import assert_never

import httpx

from simulator.book import Book, Message, Receipt
from simulator.dialect import Account, ReceiptCall, receipt_call
from simulator.engine import Answer, Engine
from simulator.front import Call, answer, is_authorized
from simulator.parse import parse_rules
from simulator.rules import Respond

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC, where the clock starts unless told otherwise


@dataclass
class SimulatorTransport(httpx.BaseTransport):
    """Answer requests from an engine; receipts wait for `advance`, those before the answer come with it."""

    account: Account = field(default_factory=Account)
    seed: int = 0
    now: float = NOON
    on_receipt: Callable[[ReceiptCall], object] | None = None
    receipts: list[ReceiptCall] = field(default_factory=list)
    """Every receipt call released so far."""

    def __post_init__(self) -> None:
        self._engine = Engine(self.account, seed=self.seed)
        self._lock = RLock()
        self._owed: list[Receipt] = []

    @property
    def book(self) -> Book:
        """What was asked for and what was accepted."""
        return self._engine.book

    def use_rules(self, rules: Sequence[object]) -> None:
        """Put other rules in force."""
        parsed = parse_rules(list(rules))
        with self._lock:
            self._engine.use_rules(parsed)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request, or fail as the network would."""
        body = request.read().decode()
        authorized = is_authorized(self.account, request.headers.get("Authorization"))
        call = Call(request.method, request.url.path, request.url.query.decode(), body, authorized)
        with self._lock:
            plan = answer(self._engine, call, now=self.now)
            self._owed += (receipt for receipt in plan.receipts if not receipt.before_answer)
        for receipt in plan.receipts:
            if receipt.before_answer:
                self._release(receipt)
        return respond(request, plan.answer)

    def advance(self, seconds: float) -> list[ReceiptCall]:
        """Move the clock on and release the receipts that came due, in their order."""
        with self._lock:
            self.now += seconds
            due = sorted((each for each in self._owed if each.due_at <= self.now), key=lambda each: each.due_at)
            self._owed = [each for each in self._owed if each.due_at > self.now]
        return [call for receipt in due for call in self._release(receipt)]

    def _release(self, receipt: Receipt) -> list[ReceiptCall]:
        message = self._find_message(receipt)
        if message is None:
            return []
        call = receipt_call(self.account, message, receipt)
        self.receipts.append(call)
        if self.on_receipt is not None:
            self.on_receipt(call)
        return [call]

    def _find_message(self, receipt: Receipt) -> Message | None:
        """Find the message of a receipt, unless a cancel has made the receipt void."""
        message = self.book.messages.get(receipt.sid)
        return message if message is not None and receipt in message.receipts else None


def respond(request: httpx.Request, planned: Answer) -> httpx.Response:
    """Make the response, or raise what httpx raises when there is none."""
    read_within = request.extensions.get("timeout", {}).get("read")
    if read_within is not None and planned.after >= read_within:
        raise httpx.ReadTimeout("no answer came in time", request=request)
    match planned.respond:
        case Respond.DROP:
            raise httpx.ReadError("the connection was reset", request=request)
        case Respond.CLOSE:
            raise httpx.RemoteProtocolError("the connection was closed without an answer", request=request)
        case Respond.TRUNCATE:
            raise httpx.RemoteProtocolError("the connection was closed within the answer", request=request)
        case Respond.HANG:
            raise httpx.ReadTimeout("no answer came", request=request)
        case Respond.ANSWER | Respond.GARBAGE | Respond.EMPTY:
            return httpx.Response(planned.status, headers=planned.headers, content=planned.body, request=request)
        case never:
            assert_never(never)
