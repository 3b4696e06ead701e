"""The vocabulary of faults: what a rule matches, and what happens then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

ANSWER_AFTER_MS = 5.0
HANG_FOR_MS = 60_000.0

# Twilio's words after which no other follows.
FINAL = frozenset({"delivered", "undelivered", "failed", "canceled", "read"})


class Occasion(StrEnum):
    """What the client asks for."""

    SEND = "send"
    POLL = "poll"
    LIST = "list"
    CANCEL = "cancel"


class Respond(StrEnum):
    """How the answer leaves, or does not."""

    ANSWER = "answer"
    DROP = "drop"
    """The connection is reset."""
    CLOSE = "close"
    """The connection is closed in good order, without an answer."""
    HANG = "hang"
    """Nothing comes for `hang_ms`, then the connection closes."""
    GARBAGE = "garbage"
    """A 2xx that is no JSON."""
    EMPTY = "empty"
    """A 2xx without a body."""
    TRUNCATE = "truncate"
    """Half of the answer, then the connection closes."""


class Signature(StrEnum):
    """How a receipt is signed."""

    RIGHT = "right"
    SHA256 = "sha256"
    WRONG = "wrong"
    NONE = "none"


class Cancels(StrEnum):
    """What a cancel does to the message."""

    OBEYED = "obeyed"
    REFUSED = "refused"
    IGNORED = "ignored"
    """Answered as if cancelled, delivered all the same."""


@dataclass(frozen=True, slots=True)
class Match:
    """Which requests a rule is for; everything left out matches."""

    on: Occasion = Occasion.SEND
    to: str | None = None
    body_contains: str | None = None
    nth: int | None = None
    every: int | None = None
    probability: float | None = None


@dataclass(frozen=True, slots=True)
class StepLine:
    """One status that a poll sees, from a time after acceptance."""

    status: str
    after_ms: float
    error_code: int | None = None


@dataclass(frozen=True, slots=True)
class ReceiptLine:
    """One receipt, at a time after acceptance."""

    status: str
    after_ms: float
    error_code: int | None = None
    copies: int = 1
    apart_ms: float = 10.0
    lost: bool = False
    before_answer: bool = False
    signature: Signature = Signature.RIGHT
    without: tuple[str, ...] = ()
    token: bool = True


SENT = ReceiptLine("sent", 50.0)
DELIVERED = ReceiptLine("delivered", 100.0)
NORMAL = (SENT, DELIVERED)

# What `receipts` may be called by name. Polls see the normal path of a preset where the receipts lie.
PRESETS: Mapping[str, tuple[ReceiptLine, ...]] = {
    "normal": NORMAL,
    "lost": (replace(SENT, lost=True), replace(DELIVERED, lost=True)),
    "duplicate": (replace(SENT, copies=2), replace(DELIVERED, copies=2)),
    "reordered": (replace(SENT, after_ms=100.0), replace(DELIVERED, after_ms=50.0)),
    "early": (replace(SENT, before_answer=True), replace(DELIVERED, before_answer=True)),
    "sent_only": (SENT,),
    "undelivered": (SENT, ReceiptLine("undelivered", 100.0, error_code=30003)),
    "contradictory": (SENT, ReceiptLine("failed", 100.0, error_code=30008), ReceiptLine("delivered", 150.0)),
    "unknown_word": (SENT, ReceiptLine("teleported", 100.0)),
    "wrong_signature": (replace(SENT, signature=Signature.WRONG), replace(DELIVERED, signature=Signature.WRONG)),
    "sha256": (replace(SENT, signature=Signature.SHA256), replace(DELIVERED, signature=Signature.SHA256)),
    "without_sid": tuple(replace(line, without=("MessageSid", "SmsSid")) for line in NORMAL),
}
TRUE_TO_PRESET = frozenset({"sent_only", "undelivered", "contradictory"})


def path_of(receipts: tuple[ReceiptLine, ...]) -> tuple[StepLine, ...]:
    """Tell what polls see where only receipts are given: the same words, never stepping back."""
    path: list[StepLine] = []
    for line in sorted(receipts, key=lambda each: each.after_ms):
        if line.status in FINAL or not any(step.status in FINAL for step in path):
            path.append(StepLine(line.status, line.after_ms, line.error_code))
    return tuple(path)


NORMAL_PATH = path_of(NORMAL)


@dataclass(frozen=True, slots=True)
class Then:
    """What happens to a request that a rule matches; as it stands, what happens where none does."""

    accept: bool = True
    respond: Respond = Respond.ANSWER
    status: int | None = None
    code: int | None = None
    message: str | None = None
    body: str | None = None
    retry_after: int | None = None
    latency_ms: tuple[float, float] = (ANSWER_AFTER_MS, ANSWER_AFTER_MS)
    hang_ms: float = HANG_FOR_MS
    receipts: tuple[ReceiptLine, ...] = NORMAL
    path: tuple[StepLine, ...] = NORMAL_PATH
    listed: bool = True
    listed_after_ms: float = 0.0
    polled: bool = True
    cancels: Cancels = Cancels.OBEYED


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the script of faults."""

    match: Match
    times: int | None
    then: Then
