"""The one way to the network: what an exchange with a carrier comes to, the same for all of them."""

from __future__ import annotations

import json
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final, TypedDict, TypeVar, Unpack

import httpx

from app.carriers.base import (
    Call,
    CancelResult,
    Capabilities,
    LookUpResult,
    NotHandedOff,
    PollResult,
    ReadInbound,
    ReadReceipt,
    Refused,
    RouteSettings,
    SendResult,
    Silence,
    Submission,
    Throttled,
    Unanswered,
    Unknown,
)
from app.ground.errors import DaybookError
from app.ground.failpoints import reach
from policy.words import ErrorClass, Reason

Answer = TypeVar("Answer")

# A handoff has 15 s in all: the four steps add up to them. A question has 10.
SEND_TIMEOUT: Final = httpx.Timeout(connect=3.0, write=3.0, pool=1.0, read=8.0)
ASK_TIMEOUT: Final = httpx.Timeout(connect=3.0, write=1.0, pool=1.0, read=5.0)

# A connection that idled longer may be half dead: a write into it leaves us not knowing.
IDLE_SECONDS: Final = 5.0

# As long as the read time-out: when we give an answer up, the kernel has given up repeating what
# was not acknowledged, so that nothing arrives at the carrier long after.
UNACKNOWLEDGED_MS: Final = 8_000

# The answers of carriers are a few hundred octets, a page of a list some ten thousand.
MAX_ANSWER_OCTETS: Final = 1_000_000

# A longer wait than a day is a mistake of the carrier's, or a date read against a wrong clock.
MAX_RETRY_AFTER: Final = timedelta(days=1)

# Request time-out, conflict and too early say nothing about whether it was taken.
AMBIGUOUS_STATUSES: Final = frozenset({408, 409, 425})

# The carrier refused the request as such: an unreadable body leaves the status as the only code.
REFUSING_STATUSES: Final = frozenset({400, 404, 422})

# httpx raises these before it writes a byte of the request. Whatever else it raises came later.
NOT_WRITTEN: Final[Mapping[type[httpx.TransportError], str]] = {
    httpx.ConnectError: "connect_failed",  # refused, DNS and TLS alike
    httpx.ConnectTimeout: "connect_timed_out",
    httpx.PoolTimeout: "pool_timed_out",
}


class RouteMisconfigured(DaybookError):
    """A route lacks a setting that its carrier needs, or has one that it cannot use."""


class _DeadlinePassed(Exception):
    """Unwinds httpx between the connection and the first byte."""


def boottime() -> float:
    """Read the clock that also counts suspension: a laptop lid or a paused machine must not stretch a deadline."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Network(TypedDict, total=False):
    """What a test, or an unusual line, may put in place of the usual."""

    transport: httpx.BaseTransport
    send_timeout: httpx.Timeout
    ask_timeout: httpx.Timeout
    clock: Callable[[], float]


class _Write:
    """Looks at the clock immediately before the first byte of a request, through httpx's trace hook."""

    def __init__(self, deadline: float, clock: Callable[[], float]) -> None:
        self.deadline = deadline
        self.clock = clock
        self.started = False

    def __call__(self, event: str, _info: object) -> None:
        # httpcore calls this with nothing in between but the system call; an exception raised here
        # closes the connection without a byte of the request sent (tried).
        if event == "http11.send_request_headers.started":
            reach("carrier/write")
            if self.clock() >= self.deadline:
                raise _DeadlinePassed
            self.started = True
        elif event == "http11.send_request_body.complete":
            reach("carrier/written")


class HttpCarrier(ABC):
    """A carrier over HTTP. Subclasses build requests and read answers; this class owns the network."""

    name: str
    capabilities: Capabilities
    silence: Silence

    def __init__(self, route: RouteSettings, **network: Unpack[Network]) -> None:
        self.route = route
        self.send_timeout = network.get("send_timeout", SEND_TIMEOUT)
        self.ask_timeout = network.get("ask_timeout", ASK_TIMEOUT)
        self.clock = network.get("clock", boottime)
        # No proxies or certificates from the environment, no redirects (a redirected POST is a
        # second send), no need for compression in answers of this size.
        self.client = httpx.Client(
            transport=network.get("transport") or _transport(),
            trust_env=False,
            follow_redirects=False,
            headers={"User-Agent": "daybook", "Accept-Encoding": "identity"},
        )

    def close(self) -> None:
        """Close the connections; the carrier cannot be used afterwards."""
        self.client.close()

    # What an adapter says.

    @abstractmethod
    def submit_request(self, submission: Submission) -> httpx.Request | Refused:
        """Build the request that hands a submission over, or refuse what the carrier would mangle."""

    @abstractmethod
    def read_submit(self, response: httpx.Response) -> SendResult:
        """Read an answer that says something for certain; KeyError or ValueError when it does not."""

    @abstractmethod
    def read_code(self, response: httpx.Response) -> str:
        """Read the carrier's own error code; KeyError or ValueError when there is none."""

    def is_not_taken(self, response: httpx.Response) -> bool:  # noqa: ARG002 (most carriers document none)
        """Say whether this 5xx is documented as "not taken, later"."""
        return False

    @abstractmethod
    def is_authentic(self, call: Call, *, url: str | None = None) -> bool:
        """Say whether the call comes from the carrier, compared in constant time."""

    @abstractmethod
    def read_receipt(self, call: Call) -> ReadReceipt:
        """Read a verified call; KeyError or ValueError when it cannot be used."""

    @abstractmethod
    def read_inbound(self, call: Call) -> ReadInbound:
        """Read a verified call that hands over a text; KeyError or ValueError when it cannot be used."""

    # What the flows ask.

    def send(self, submission: Submission, *, deadline: float) -> SendResult:
        """Hand one submission over; nothing is written once CLOCK_BOOTTIME passes `deadline` (seconds)."""
        try:
            request = self.submit_request(submission)
        except UnicodeEncodeError:  # half a surrogate pair: no carrier has octets for it
            return Refused(ErrorClass.PERMANENT_CONTENT, "not_unicode")
        if isinstance(request, Refused):
            return request
        if self.clock() >= deadline:
            return NotHandedOff("deadline_passed")
        write = _Write(deadline, self.clock)
        request.extensions = {**request.extensions, "trace": write}
        try:
            response = self._exchange(request, self.send_timeout)
        except _DeadlinePassed:
            return NotHandedOff("deadline_passed")
        except httpx.RequestError as error:
            return _result_of(error, written=write.started)
        reach("carrier/answered")
        return self._read_answer(response)

    def poll(self, remote_id: str) -> PollResult:  # noqa: ARG002 (for carriers that have no such question)
        """Ask what became of a message."""
        return Unanswered("not_offered")

    def look_up(self, address: str) -> LookUpResult:  # noqa: ARG002 (for carriers that have no such question)
        """List what the carrier took for this address, newest first."""
        return Unanswered("not_offered")

    def cancel(self, remote_id: str) -> CancelResult:  # noqa: ARG002 (for carriers that have no such question)
        """Ask the carrier not to deliver; its answer is evidence, not the outcome."""
        return Unanswered("not_offered")

    def ask(self, request: httpx.Request, read: Callable[[httpx.Response], Answer]) -> Answer | Unanswered:
        """Put a question that changes nothing at the carrier; whatever goes wrong, it is only unanswered."""
        try:
            response = self._exchange(request, self.ask_timeout)
        except httpx.RequestError as error:
            return Unanswered(_word(error))
        status = response.status_code
        if status in {401, 403, 429} or status in AMBIGUOUS_STATUSES or response.is_server_error:
            return Unanswered(str(status))
        try:
            return read(response)
        except (KeyError, ValueError):
            return Unanswered("unreadable_answer")

    def setting(self, name: str) -> str:
        """Get a setting that the carrier cannot do without."""
        return _required(self.route.settings, name)

    def address(self, name: str, default: str | None = None) -> str:
        """Get a setting that is a URL of the carrier's, without a slash at its end."""
        value = self.route.settings.get(name) or default or self.setting(name)
        try:
            url = httpx.URL(value)
        except httpx.InvalidURL as error:
            raise RouteMisconfigured(f"the route's {name} is no URL") from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise RouteMisconfigured(f"the route's {name} is no http or https URL")
        return value.rstrip("/")

    def credential(self, name: str) -> str:
        """Get a credential that the carrier cannot do without."""
        return _required(self.route.credentials, name)

    def _exchange(self, request: httpx.Request, timeout: httpx.Timeout) -> httpx.Response:
        """Send a request once and read its answer whole, within the sum of the time-outs."""
        limits = timeout.as_dict()
        request.extensions = {**request.extensions, "timeout": limits}
        # The read time-out starts again with every octet: a carrier that drips needs an end as well.
        until = time.monotonic() + sum(seconds or 0.0 for seconds in limits.values())
        response = self.client.send(request, stream=True)
        try:
            content = b"".join(_bounded(response.iter_bytes(), until))
        finally:
            response.close()
        headers = response.headers.copy()
        headers.pop("Content-Encoding", None)  # undone already, where somebody compressed all the same
        return httpx.Response(response.status_code, headers=headers, content=content, request=request)

    def _read_answer(self, response: httpx.Response) -> SendResult:
        """Read what the status alone decides; the adapter reads the rest."""
        if decided := self._read_status(response):
            return decided
        status = response.status_code
        try:
            return self.read_submit(response)
        except (KeyError, ValueError):
            if status in REFUSING_STATUSES:
                return Refused(ErrorClass.UNCLASSIFIED, str(status))
            return Unknown(Reason.UNREADABLE_ANSWER, str(status))

    def _read_status(self, response: httpx.Response) -> SendResult | None:
        status = response.status_code
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return Throttled(retry_after(response), self._code(response))
        if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
            return Refused(ErrorClass.AUTH_CONFIG, self._code(response))
        if response.is_server_error and self.is_not_taken(response):
            return Throttled(retry_after(response), str(status))
        if response.is_server_error or status in AMBIGUOUS_STATUSES:
            return Unknown(Reason.CARRIER_FAULT, str(status))
        return None

    def _code(self, response: httpx.Response) -> str:
        try:
            return self.read_code(response)
        except (KeyError, ValueError):
            return str(response.status_code)


def retry_after(response: httpx.Response) -> timedelta | None:
    """Read Retry-After as a duration; a date counts from the answer's own Date, never from our clock."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        # More digits than fit a timedelta are as good as the longest wait we honour.
        return min(timedelta(seconds=int(value[:9])), MAX_RETRY_AFTER)
    try:
        wait = _http_date(value) - _http_date(response.headers.get("Date", ""))
    except ValueError:
        return None
    return max(timedelta(0), min(wait, MAX_RETRY_AFTER))


def json_object(content: bytes) -> Mapping[str, object]:
    """Read a JSON object; ValueError for anything else."""
    try:
        answer = json.loads(content)
    except RecursionError as error:  # a page of opening brackets
        raise ValueError("too deep") from error
    if not isinstance(answer, dict):
        raise ValueError("not an object")  # noqa: TRY004 (one error for everything that cannot be read)
    return answer


def _http_date(value: str) -> datetime:
    read = parsedate_to_datetime(value)
    return read if read.tzinfo else read.replace(tzinfo=UTC)  # "-0000" is UTC without a claim to a zone


def _required(values: Mapping[str, str], name: str) -> str:
    if not (value := values.get(name)):
        raise RouteMisconfigured(f"the route lacks {name}")
    return value


def _bounded(chunks: Iterable[bytes], until: float) -> Iterator[bytes]:
    octets = 0
    for chunk in chunks:
        octets += len(chunk)
        if octets > MAX_ANSWER_OCTETS:
            raise httpx.DecodingError("longer than any answer")
        if time.monotonic() > until:
            raise httpx.ReadTimeout("dripping")
        yield chunk


def _result_of(error: httpx.RequestError, *, written: bool) -> NotHandedOff | Unknown:
    """Say what an error means for a send: not handed off only where it is certain."""
    if isinstance(error, httpx.DecodingError):
        return Unknown(Reason.UNREADABLE_ANSWER, _word(error))
    why = NOT_WRITTEN.get(type(error)) if isinstance(error, httpx.TransportError) else None
    if why and not written:
        return NotHandedOff(why)
    return Unknown(Reason.TIMED_OUT, _word(error))


def _word(error: httpx.RequestError) -> str:
    """Name an error without its text, which may carry addresses."""
    return type(error).__name__


def _transport() -> httpx.HTTPTransport:
    return httpx.HTTPTransport(
        trust_env=False,
        retries=0,
        limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=IDLE_SECONDS),
        socket_options=[(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)],
    )
