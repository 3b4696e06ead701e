"""The carrier without its network: requests, rules, a seed and `now` in; answers and receipts out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice

from simulator.book import WAITING, Book, Message, Receipt, Request, Step, Submission
from simulator.chance import draw, hex_digits
from simulator.dialect import JSON, Account, encode, error_json, list_json, message_json
from simulator.rules import ANSWER_AFTER_MS, Cancels, Occasion, ReceiptLine, Respond, Rule, StepLine, Then
from simulator.script import Asked, Script

MILLISECOND = 0.001
FIRST_ERROR = 400
CANCELLED_RECEIPT_AFTER = 50 * MILLISECOND
VALIDITY_PERIOD_EXPIRED = 30036
NOT_CANCELLABLE = 30409
GARBAGE = b"<html><body>It works!</body></html>"
HTML = ("Content-Type", "text/html")
SILENT = frozenset({Respond.DROP, Respond.CLOSE, Respond.HANG})


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back to the client, how and when."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (JSON,)
    respond: Respond = Respond.ANSWER
    after: float = ANSWER_AFTER_MS * MILLISECOND
    hang_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """An answer, and the receipts that the request makes us owe."""

    answer: Answer
    receipts: tuple[Receipt, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages a list asks for."""

    query: str
    next_query: str
    """The same query without a page token; a next page appends one."""
    page_size: int
    to: str | None = None
    sender: str | None = None
    left_from: datetime | None = None
    left_until: datetime | None = None
    after_sid: str | None = None


def refusal(status: int, code: int | None = None, message: str | None = None) -> Answer:
    """Make a plain refusal."""
    return Answer(status, encode(error_json(status, code, message)))


class Engine:
    """A carrier's state and laws. The same seed and the same calls give the same book."""

    def __init__(self, account: Account, *, seed: int) -> None:
        self.account = account
        self.reset(seed=seed)

    def reset(self, *, seed: int) -> None:
        """Forget every message, request, receipt and rule."""
        self.seed = seed
        self.book = Book()
        self.use_rules(())

    def use_rules(self, rules: Sequence[Rule]) -> None:
        """Put other rules in force; their counts start anew."""
        self._script = Script(rules, seed=self.seed)

    def send(self, submission: Submission, *, now: float) -> Plan:
        """Take a submission, or not, as the rules say."""
        turn = self._count(submission.to)
        then, rule = self._script.choose(Asked(Occasion.SEND, submission.to, submission.body, turn))
        message = self._plan(submission, then, turn=turn, now=now)
        normal = Answer(201, encode(message_json(self.account, message, now=now)))
        answer = self._shape(normal, then, submission.to, turn)
        if then.accept:
            self.book.enter(message)
        self._note(submission, answer, sid=message.sid if then.accept else None, rule=rule, now=now)
        return Plan(answer, message.receipts if then.accept else ())

    def refuse(self, submission: Submission, answer: Answer, *, now: float) -> Plan:
        """Write down a send that is refused whatever the rules say."""
        self._note(submission, answer, sid=None, rule=None, now=now)
        return Plan(answer)

    def poll(self, sid: str, *, now: float) -> Plan:
        """Answer what became of a message."""
        message = self.book.messages.get(sid)
        if message is None or not message.polled:
            return Plan(self._not_found(sid))
        normal = Answer(200, encode(message_json(self.account, message, now=now)))
        return Plan(self._shape_by_rule(Occasion.POLL, message.submission.to, normal))

    def find_all(self, wanted: Wanted, *, now: float) -> Plan:
        """Answer one page of the list of messages, newest first."""
        matching = (m for m in self.book.newest_first(wanted.to) if is_wanted(m, wanted, now=now))
        page = list(islice(_after(matching, wanted.after_sid), wanted.page_size + 1))
        shown = page[: wanted.page_size]
        more = f"{wanted.next_query}&PageToken=PA{shown[-1].sid}" if len(page) > len(shown) else None
        listed = list_json(self.account, shown, query=wanted.query, next_query=more, page_size=wanted.page_size, now=now)
        return Plan(self._shape_by_rule(Occasion.LIST, wanted.to or "", Answer(200, encode(listed))))

    def cancel(self, sid: str, *, now: float) -> Plan:
        """Cancel a message that has not left yet."""
        message = self.book.messages.get(sid)
        if message is None:
            return Plan(self._not_found(sid))
        if message.cancels is Cancels.REFUSED or message.step_at(now).status not in WAITING:
            return Plan(self._shape_by_rule(Occasion.CANCEL, message.submission.to, refusal(400, NOT_CANCELLABLE)))
        cancelled = self._cancelled(message, now=now)
        if message.cancels is Cancels.OBEYED:
            self.book.change(cancelled)
        normal = Answer(200, encode(message_json(self.account, cancelled, now=now)))
        receipts = cancelled.receipts[-1:] if message.cancels is Cancels.OBEYED else ()
        return Plan(self._shape_by_rule(Occasion.CANCEL, message.submission.to, normal), receipts)

    def _count(self, to: str) -> int:
        self.book.turns[to] += 1
        return self.book.turns[to]

    def _plan(self, submission: Submission, then: Then, *, turn: int, now: float) -> Message:
        # The id depends on number and turn alone, so that racing senders get the same ids in any order.
        sid = "SM" + hex_digits(self.seed, "sid", submission.to, turn)
        path, lines = within_validity(then.path, then.receipts, submission.valid_for)
        owed = () if submission.receipt_url is None else self._receipts(sid, lines, now=now)
        return Message(
            sid=sid,
            submission=submission,
            accepted_at=now,
            path=(Step("queued", now), *(Step(s.status, now + s.after_ms * MILLISECOND, s.error_code) for s in path)),
            receipts=owed,
            listed_at=now + then.listed_after_ms * MILLISECOND if then.listed else None,
            polled=then.polled,
            cancels=then.cancels,
        )

    def _receipts(self, sid: str, lines: Iterable[ReceiptLine], *, now: float) -> tuple[Receipt, ...]:
        return tuple(
            Receipt(
                id=f"{sid}/{index}/{copy}",
                sid=sid,
                due_at=now + (line.after_ms + copy * line.apart_ms) * MILLISECOND,
                status=line.status,
                # One token per event: Twilio repeats it with each repetition of the call.
                idempotency_token=hex_digits(self.seed, "token", sid, index) if line.token else None,
                error_code=line.error_code,
                before_answer=line.before_answer,
                signature=line.signature,
                without=line.without,
            )
            for index, line in enumerate(lines)
            if not line.lost
            for copy in range(line.copies)
        )

    def _cancelled(self, message: Message, *, now: float) -> Message:
        token = hex_digits(self.seed, "token", message.sid, "canceled")
        receipt = Receipt(f"{message.sid}/canceled", message.sid, now + CANCELLED_RECEIPT_AFTER, "canceled", token)
        past = tuple(step for step in message.path if step.at <= now)
        due = tuple(each for each in message.receipts if each.due_at <= now)
        owed = () if message.submission.receipt_url is None else (receipt,)
        return replace(message, path=(*past, Step("canceled", now)), receipts=(*due, *owed))

    def _shape_by_rule(self, on: Occasion, to: str, normal: Answer) -> Answer:
        then, rule = self._script.choose(Asked(on, to))
        return normal if rule is None else self._shape(normal, then, to, rule)

    def _shape(self, normal: Answer, then: Then, *about: object) -> Answer:
        low, high = then.latency_ms
        after = (low + (high - low) * draw(self.seed, "latency", *about)) * MILLISECOND
        timed = replace(shaped(normal, then), after=after, hang_for=then.hang_ms * MILLISECOND, respond=then.respond)
        if then.retry_after is None:
            return timed
        return replace(timed, headers=(*timed.headers, ("Retry-After", str(then.retry_after))))

    def _not_found(self, sid: str) -> Answer:
        path = f"{self.account.messages_path}/{sid}.json"
        return refusal(404, 20404, f"The requested resource {path} was not found")

    def _note(self, submission: Submission, answer: Answer, *, sid: str | None, rule: int | None, now: float) -> None:
        status = None if answer.respond in SILENT else answer.status
        accepted = sid is not None
        request = Request(now, submission.to, submission.key, accepted, sid, answer.respond, status, rule)
        self.book.requests.append(request)


def shaped(normal: Answer, then: Then) -> Answer:
    """Bend a normal answer into what a rule says."""
    status = then.status or normal.status
    if then.body is not None:
        return Answer(status, then.body.encode(), headers=(JSON if then.body[:1] in "{[" else HTML,))
    if then.respond is Respond.GARBAGE:
        return Answer(status, GARBAGE, headers=(HTML,))
    if then.respond is Respond.EMPTY:
        return Answer(status)
    if status >= FIRST_ERROR and normal.status < FIRST_ERROR:
        return refusal(status, then.code, then.message)
    return replace(normal, status=status)


def within_validity(
    path: tuple[StepLine, ...], receipts: tuple[ReceiptLine, ...], valid_for: float | None
) -> tuple[tuple[StepLine, ...], tuple[ReceiptLine, ...]]:
    """Let a message that would still wait at the end of its validity fail there."""
    first = next((step for step in path if step.status not in WAITING), None)
    if valid_for is None or first is None or first.after_ms * MILLISECOND <= valid_for:
        return path, receipts
    at_ms = valid_for / MILLISECOND
    failed = StepLine("failed", at_ms, VALIDITY_PERIOD_EXPIRED)
    told = ReceiptLine("failed", at_ms, VALIDITY_PERIOD_EXPIRED, lost=all(line.lost for line in receipts))
    return (*(step for step in path if step.after_ms < at_ms), failed), (told,)


def is_wanted(message: Message, wanted: Wanted, *, now: float) -> bool:
    """Say whether a list shows a message."""
    if message.listed_at is None or message.listed_at > now:
        return False
    if wanted.sender not in (None, message.submission.sender):
        return False
    if wanted.left_from is None and wanted.left_until is None:
        return True
    left_at = message.left_at(now)
    if left_at is None:  # date_sent is null until then, and a filter on it finds no null
        return False
    left = datetime.fromtimestamp(left_at, UTC)
    return (wanted.left_from is None or wanted.left_from <= left) and (wanted.left_until is None or left < wanted.left_until)


def _after(messages: Iterable[Message], sid: str | None) -> Iterable[Message]:
    """Go on after a message; new ones come before it, so no page repeats or skips."""
    walk = iter(messages)
    if sid is not None:
        next((message for message in walk if message.sid == sid), None)
    return walk
