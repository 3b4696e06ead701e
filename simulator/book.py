"""The outside truth: what was asked for, what was accepted, which receipts were posted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

from simulator.rules import Cancels, Respond, Signature

WAITING = frozenset({"accepted", "scheduled", "queued"})


@dataclass(frozen=True, slots=True)
class Submission:
    """What the client asks us to send."""

    to: str
    sender: str
    body: str
    receipt_url: str | None = None
    valid_for: float | None = None
    messaging_service_sid: str | None = None

    @property
    def key(self) -> str | None:
        """The `key` parameter of the receipt URL, by which the client knows its attempt."""
        if self.receipt_url is None:
            return None
        return parse_qs(urlsplit(self.receipt_url).query).get("key", [None])[0]


@dataclass(frozen=True, slots=True)
class Step:
    """A status that a message has from an instant on."""

    status: str
    at: float
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """One receipt to post."""

    id: str
    sid: str
    due_at: float
    status: str
    idempotency_token: str | None
    error_code: int | None = None
    before_answer: bool = False
    signature: Signature = Signature.RIGHT
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One accepted message and all that will become of it."""

    sid: str
    submission: Submission
    accepted_at: float
    path: tuple[Step, ...]
    receipts: tuple[Receipt, ...]
    listed_at: float | None
    """From when a list shows it; None means never."""
    polled: bool
    cancels: Cancels

    def step_at(self, now: float) -> Step:
        """Give the latest step that has come by now."""
        return next((step for step in reversed(self.path) if step.at <= now), self.path[0])

    def left_at(self, now: float) -> float | None:
        """Tell when the message left for the network, or ended without: Twilio's date_sent."""
        return next((step.at for step in self.path if step.status not in WAITING and step.at <= now), None)


@dataclass(frozen=True, slots=True)
class Request:
    """One send request as it came in, accepted or not."""

    arrived_at: float
    to: str
    key: str | None
    accepted: bool
    sid: str | None
    respond: Respond
    status: int | None
    rule: int | None


@dataclass(frozen=True, slots=True)
class Post:
    """One receipt call and how it was answered."""

    receipt_id: str
    sid: str
    to: str
    key: str | None
    status: str
    idempotency_token: str | None
    signature: Signature
    at: float
    turn: int
    outcome: str
    """answered, connect_failed, timed_out, broken or refused_host."""
    http_status: int | None
    final: bool
    """No further try of this receipt follows."""


@dataclass
class Book:
    """Everything since the last reset."""

    messages: dict[str, Message] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    turns: Counter[str] = field(default_factory=Counter)
    """How many sends were asked for, by number."""
    _sids_to: dict[str, list[str]] = field(default_factory=dict)
    _pending: dict[str, tuple[Receipt, int]] = field(default_factory=dict)

    def enter(self, message: Message) -> None:
        """Write an accepted message down, with the receipts it owes."""
        self.messages[message.sid] = message
        self._sids_to.setdefault(message.submission.to, []).append(message.sid)
        self._pending.update((receipt.id, (receipt, 0)) for receipt in message.receipts)

    def change(self, message: Message) -> None:
        """Replace a message: receipts it no longer plans are dropped, new ones are owed."""
        before = {receipt.id for receipt in self.messages[message.sid].receipts}
        after = {receipt.id: receipt for receipt in message.receipts}
        for receipt_id in before - after.keys():
            self._pending.pop(receipt_id, None)
        self._pending.update((each, (after[each], 0)) for each in after.keys() - before)
        self.messages[message.sid] = message

    def note(self, post: Post) -> None:
        """Write a receipt call down; after the final one it is no longer owed."""
        if post.sid not in self.messages:  # it was under way when the book was emptied
            return
        self.posts.append(post)
        if post.receipt_id not in self._pending:
            return
        if post.final:
            del self._pending[post.receipt_id]
        else:
            self._pending[post.receipt_id] = (self._pending[post.receipt_id][0], post.turn)

    def is_pending(self, receipt: Receipt) -> bool:
        """Say whether this very receipt is still owed; after a reset another may bear its id."""
        return self._pending.get(receipt.id, (None, 0))[0] == receipt

    def pending(self) -> list[tuple[Receipt, int]]:
        """List the receipts still owed and how often each was tried, the earliest due first."""
        return sorted(self._pending.values(), key=lambda owed: owed[0].due_at)

    def newest_first(self, to: str | None = None) -> Iterator[Message]:
        """Walk the accepted messages, of one number or of all."""
        sids = reversed(self.messages) if to is None else reversed(self._sids_to.get(to, []))
        return (self.messages[sid] for sid in sids)
