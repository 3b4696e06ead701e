"""What every carrier is to Daybook: results, capabilities, and the one way to the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from app.ground.ids import RouteId
from policy.states import AttemptState
from policy.words import ErrorClass, Reason


class Receipts(StrEnum):
    """What receipts of a carrier are worth."""

    RELIABLE = "reliable"
    UNRELIABLE = "unreliable"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a carrier can do. Retry, failover, look-up and closing read this, never a carrier's name."""

    idempotency_key: bool
    reference_echoed: bool
    receipts: Receipts
    polls: bool
    cancels: bool
    looks_up: bool
    lookup_conclusive: bool
    """Whether "not found", asked twice after the settling time, means that it was never taken."""
    validity_period: bool
    settling_for: timedelta
    horizon_for: timedelta
    confirms_opt_out: bool = False
    """Whether it usually answers a STOP by itself; a route may say otherwise."""
    shortest_validity: timedelta = timedelta(0)
    """The least that the carrier can be told to go on trying for; what has less time left is not handed off."""


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """A configured way to a carrier, with its credentials in clear; it never leaves the process."""

    id: RouteId
    carrier: str
    sender: str
    receipt_url: str
    """The full public URL that the carrier calls, without our query."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What is no secret: base_url, account_sid, smsc …"""
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def inbound_url(self) -> str:
        """Give the full public URL at which the carrier hands over what people write; a route may configure another."""
        return self.settings.get("inbound_url") or self.receipt_url.replace("/v1/receipts/", "/v1/inbound/")


@dataclass(frozen=True, slots=True)
class Submission:
    """What we give the carrier for one attempt."""

    attempt_key: str
    address: str = field(repr=False)
    """E.164, with the plus."""
    body: str = field(repr=False)
    valid_for: timedelta
    """How long the carrier may go on trying: the time left of the event."""


# What a send came to. A closed union: take it apart with `match` and `assert_never`.


@dataclass(frozen=True, slots=True)
class Submitted:
    """The carrier has it, and its answer says so."""

    remote_ids: tuple[str, ...] = ()
    """One per part; empty where the carrier names none (Kannel)."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The carrier did not take it, for certain, and said why."""

    error_class: ErrorClass
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Throttled:
    """The carrier did not take it now; it may later."""

    retry_after: timedelta | None = None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class NotHandedOff:
    """Not a byte of the request left this machine."""

    why: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have been taken, or not. Never a reason to send again."""

    reason: Reason
    code: str | None = None


SendResult = Submitted | Refused | Throttled | NotHandedOff | Unknown


@dataclass(frozen=True, slots=True)
class Report:
    """One state read out of what a carrier said, whichever way it came."""

    state: AttemptState
    """submitted, unknown, failed or delivered."""
    remote_id: str | None = None
    error_class: ErrorClass | None = None
    error_code: str | None = None
    reason: Reason | None = None
    """Why it is unknown, where it is: unknown_word, carrier_unsure."""
    source_at: datetime | None = None
    """The carrier's own time, only where it has a zone."""
    part: int = 0


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A poll, look-up or cancel brought no usable answer; asked again later."""

    why: str


@dataclass(frozen=True, slots=True)
class NoSuchMessage:
    """The carrier does not know the remote id we polled."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A message in the carrier's books that may be the one we look for."""

    remote_id: str
    sender: str = field(repr=False)
    body: str = field(repr=False)
    created_at: datetime
    report: Report


PollResult = Report | NoSuchMessage | Unanswered
LookUpResult = Sequence[Candidate] | Unanswered
CancelResult = Report | NoSuchMessage | Unanswered


@dataclass(frozen=True, slots=True)
class Call:
    """A call of the carrier's exactly as it came in."""

    method: str
    query: bytes
    """The raw query string, without the question mark."""
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ReadReceipt:
    """What a verified call says."""

    reports: tuple[Report, ...]
    """Empty when the call carries no news (an inbound word, a control call)."""
    reference: str | None
    """Our attempt key, as it travelled in the callback URL."""
    dedupe_key: str
    """The same for every repetition of this call, different for every other."""
    address: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ReadInbound:
    """What a verified call says that hands over a text somebody wrote to a number of ours."""

    address: str = field(repr=False)
    """Whose text it is, as the carrier writes it."""
    text: str = field(repr=False)
    dedupe_key: str
    """The same for every repetition of this call, different for every other."""
    opts_out: bool = False
    """The carrier says that it took the text for an opt-out."""
    answered: bool = False
    """The carrier takes it for an opt-out and answers it, where it does that on this route."""


@dataclass(frozen=True, slots=True)
class Silence:
    """What to answer a call that hands over a text, so that the carrier takes it and texts nothing back."""

    mimetype: str
    body: bytes


class Carrier(Protocol):
    """What the flows ask of a carrier. An adapter never retries, sleeps, logs or decides."""

    name: str
    capabilities: Capabilities
    silence: Silence

    def send(self, submission: Submission, *, deadline: float) -> SendResult:
        """Hand one submission over; nothing is written once CLOCK_BOOTTIME passes `deadline` (seconds)."""
        ...

    def poll(self, remote_id: str) -> PollResult:
        """Ask what became of a message."""
        ...

    def look_up(self, address: str) -> LookUpResult:
        """List what the carrier took for this address, newest first."""
        ...

    def cancel(self, remote_id: str) -> CancelResult:
        """Ask the carrier not to deliver; its answer is evidence, not the outcome."""
        ...

    def is_authentic(self, call: Call, *, url: str | None = None) -> bool:
        """Say whether the call, at the receipt URL or the one named, comes from the carrier; compared in constant time."""
        ...

    def read_receipt(self, call: Call) -> ReadReceipt:
        """Read a verified call; KeyError or ValueError when it cannot be used (it is quarantined)."""
        ...

    def read_inbound(self, call: Call) -> ReadInbound:
        """Read a verified call that hands over a text; KeyError or ValueError when it cannot be used (it is quarantined)."""
        ...
