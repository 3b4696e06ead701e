"""The simulator's own API under /_sim: read the book, change the rules, post a receipt by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import count
from urllib.parse import parse_qsl

from policy import segments
from simulator.book import Book, Message, Receipt, Submission
from simulator.carrier import LARGEST_SEED, SimulatedCarrier, wall_clock
from simulator.chance import hex_digits
from simulator.dialect import Inbound, encode, inbound_call
from simulator.engine import Answer, refusal
from simulator.front import Call, is_url
from simulator.parse import code
from simulator.poster import Poster
from simulator.reading import Fields, RulesRefused, anything, flag, items, text, whole, word
from simulator.rules import Signature
from simulator.say import say

PREFIX = "/_sim/"
UNNAMED = "+15005550006"
"""Whom a text is written to when nobody says."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What a list is narrowed to."""

    to: str | None
    key: str | None
    sid: str | None

    def keeps(self, *, to: str, key: str | None, sid: str | None) -> bool:
        """Say whether a row stays."""
        return self.to in (None, to) and self.key in (None, key) and self.sid in (None, sid)


class Control:
    """Answer the calls under /_sim."""

    def __init__(self, carrier: SimulatedCarrier, poster: Poster) -> None:
        self._carrier = carrier
        self._poster = poster
        self._by_hand = count(1)
        self._verbs: dict[tuple[str, str], Callable[[Call], object]] = {
            ("GET", "accepted"): self._accepted,
            ("GET", "requests"): self._requests,
            ("GET", "receipts"): self._receipts,
            ("GET", "rules"): self._rules,
            ("GET", "health"): self._health,
            ("PUT", "rules"): self._use_rules,
            ("POST", "reset"): self._reset,
            ("POST", "receipts"): self._post,
            ("POST", "inbound"): self._hand_over,
        }

    def answer(self, call: Call) -> Answer:
        """Do what one control call asks for; a mistake in it is a 400 that changes nothing."""
        verb = self._verbs.get((call.method, call.path.removeprefix(PREFIX)))
        if verb is None:
            return replace(refusal(404), after=0)
        try:
            return Answer(200, encode(verb(call)), after=0)
        except RulesRefused as error:
            return Answer(400, encode({"error": str(error)}), after=0)

    def _accepted(self, call: Call) -> object:
        wanted, now = _filters(call), wall_clock()
        return self._carrier.read(
            lambda book: [
                _accepted_row(message, now=now)
                for message in book.messages.values()
                if wanted.keeps(to=message.submission.to, key=message.submission.key, sid=message.sid)
            ]
        )

    def _requests(self, call: Call) -> object:
        wanted = _filters(call)
        return [
            asdict(each)
            for each in self._carrier.read(lambda book: list(book.requests))
            if wanted.keeps(to=each.to, key=each.key, sid=each.sid)
        ]

    def _receipts(self, call: Call) -> object:
        wanted = _filters(call)
        return [
            asdict(each)
            for each in self._carrier.read(lambda book: list(book.posts))
            if wanted.keeps(to=each.to, key=each.key, sid=each.sid)
        ]

    def _rules(self, _call: Call) -> object:
        rules, seed = self._carrier.rules()
        return {"rules": rules, "seed": seed}

    def _health(self, _call: Call) -> object:
        _, seed = self._carrier.rules()
        return {"status": "ok", "account_sid": self._carrier.account.sid, "seed": seed} | self._carrier.read(_counts)

    def _use_rules(self, call: Call) -> object:
        fields = Fields(_json(call), "body")
        rules, seed = fields.get("rules", items(anything)), fields.find("seed", whole(0, LARGEST_SEED))
        fields.end()
        self._carrier.use_rules(list(rules), seed=seed)
        say("rules", count=len(rules))
        return self._rules(call)

    def _reset(self, call: Call) -> object:
        fields = Fields(_json(call) if call.body else {}, "body")
        seed = fields.find("seed", whole(0, LARGEST_SEED))
        fields.end()
        self._carrier.reset(seed=seed)
        say("reset")
        return self._health(call)

    def _post(self, call: Call) -> object:
        """Post one receipt now, whatever the message's own plan says; polls do not change by it."""
        fields = Fields(_json(call), "body")
        message = self._find_message(fields.find("sid", text), fields.find("to", text))
        number = next(self._by_hand)
        token = hex_digits(number, "by hand", message.sid)
        receipt = Receipt(
            id=f"{message.sid}/by-hand/{number}",
            sid=message.sid,
            due_at=wall_clock(),
            status=fields.get("status", text),
            idempotency_token=token if fields.take("token", flag, default=True) else None,
            error_code=fields.find("error_code", code),
            signature=fields.take("signature", word(Signature), Signature.RIGHT),
            without=fields.take("without", items(text), ()),
        )
        fields.end()
        return asdict(self._poster.post(message, receipt, may_retry=False))

    def _hand_over(self, call: Call) -> object:
        """Write to whoever texted this number last, or to a URL: where its receipts go says where its answers do."""
        fields = Fields(_json(call), "body")
        sender, url = fields.get("from", text), fields.find("url", text)
        last = self._find_message(None, sender) if url is None else None
        told = Inbound(
            sender=sender,
            to=fields.take("to", text, last.submission.sender if last else UNNAMED),
            text=fields.get("text", text),
            opt_out_type=fields.find("opt_out_type", text),
            signature=fields.take("signature", word(Signature), Signature.RIGHT),
        )
        sid = fields.take("sid", text, "SM" + hex_digits(next(self._by_hand), "inbound", sender, wall_clock()))
        fields.end()
        url = url or _inbound_url(last.submission.receipt_url or "" if last else "")
        outcome, http_status = self._poster.hand_over(inbound_call(self._carrier.account, url, sid=sid, told=told))
        return {"sid": sid, "url": url, "outcome": outcome, "http_status": http_status}

    def _find_message(self, sid: str | None, to: str | None) -> Message:
        """Find a message by id, or the latest to a number."""
        if (sid is None) == (to is None):
            raise RulesRefused("body: one of sid and to is wanted")
        message = self._carrier.read(lambda book: book.messages.get(sid) if sid else next(book.newest_first(to), None))
        if message is None:
            raise RulesRefused("body: there is no such message")
        if not _can_be_told(message.submission):
            raise RulesRefused("body: the message came without a StatusCallback")
        return message


def _inbound_url(receipt_url: str) -> str:
    return receipt_url.partition("#")[0].partition("?")[0].replace("/v1/receipts/", "/v1/inbound/")


def _can_be_told(submission: Submission) -> bool:
    return submission.receipt_url is not None and is_url(submission.receipt_url)


def _filters(call: Call) -> Filters:
    asked = dict(parse_qsl(call.query))
    # A plus in a query string is a space; nobody means a space before a number.
    to = asked.pop("to", None)
    wanted = Filters(None if to is None else f"+{to.strip(' +')}", asked.pop("key", None), asked.pop("sid", None))
    if asked:
        raise RulesRefused(f"query.{min(asked)}: is not a known filter")
    return wanted


def _json(call: Call) -> object:
    try:
        return json.loads(call.body)
    except ValueError:
        raise RulesRefused("body: JSON is wanted") from None


def _counts(book: Book) -> dict[str, object]:
    return {
        "accepted": len(book.messages),
        "requests": len(book.requests),
        "receipts_posted": len(book.posts),
        "receipts_pending": len(book.pending()),
    }


def _accepted_row(message: Message, *, now: float) -> dict[str, object]:
    submission = message.submission
    return {
        "sid": message.sid,
        "to": submission.to,
        "from": submission.sender,
        "body": submission.body,
        "body_sha256": sha256(submission.body.encode()).hexdigest(),
        "segments": segments.count(submission.body).segments,
        "accepted_at": message.accepted_at,
        "key": submission.key,
        "receipt_url": submission.receipt_url,
        "status": message.step_at(now).status,
    }
