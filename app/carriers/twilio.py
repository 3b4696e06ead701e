"""Twilio Messages, REST 2010-04-01 (twilio-oai api_v2010 of 2026-04 and twilio-python 9.13.0, read 2026-11-30)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import product
from typing import Final, Unpack
from urllib.parse import quote, urlsplit

import httpx

from app.carriers.base import (
    Call,
    CancelResult,
    Candidate,
    Capabilities,
    LookUpResult,
    NoSuchMessage,
    PollResult,
    ReadInbound,
    ReadReceipt,
    Receipts,
    Refused,
    Report,
    RouteSettings,
    SendResult,
    Silence,
    Submission,
    Submitted,
    Throttled,
    Unanswered,
)
from app.carriers.calls import first_values, header, need, pairs, query_values, same_call, with_query
from app.carriers.http import HttpCarrier, Network, json_object
from policy.states import AttemptState
from policy.words import ErrorClass, Reason

# theirs: ours. In answers, receipts and polls alike. What is not here is unclassified, as are
# 30008 ("unknown error") and 21602 and 21604 (our own mistakes).
REFUSALS: Final = {
    **dict.fromkeys(
        ("21211", "21214", "21217", "21612", "21614", "30004", "30005", "30006"),
        ErrorClass.PERMANENT_RECIPIENT,
    ),
    **dict.fromkeys(("21617", "21618", "30007", "30019", "63016"), ErrorClass.PERMANENT_CONTENT),
    "21610": ErrorClass.OPTED_OUT,
    **dict.fromkeys(("30003", "30017", "30020", "30021", "30410", "20500", "20503"), ErrorClass.TRANSIENT),
    **dict.fromkeys(("20429", "21611", "30001", "30022", "30023", "30027"), ErrorClass.THROTTLED),
    **dict.fromkeys(
        ("20003", "20404", "21212", "21408", "21603", "21606", "21608", "21609", "21701", "21703", "21704", "21705"),
        ErrorClass.AUTH_CONFIG,
    ),
    **dict.fromkeys(("30002", "30018", "30024", "30032", "30034"), ErrorClass.AUTH_CONFIG),
}

# theirs: ours. `sent` is the last word on many routes.
REPORTS: Final = {
    **dict.fromkeys(("accepted", "scheduled", "queued", "sending", "sent"), AttemptState.SUBMITTED),
    **dict.fromkeys(("delivered", "read"), AttemptState.DELIVERED),
    **dict.fromkeys(("undelivered", "failed", "canceled"), AttemptState.FAILED),
    "partially_delivered": AttemptState.UNKNOWN,
}

# What its default opt-out handling takes for an opt-out, as a whole message in any case: it blocks the number and answers.
OPT_OUT_WORDS: Final = frozenset({"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"})

INBOUND: Final = frozenset({"receiving", "received"})
CANCELED: Final = "canceled"  # a failure without an error code: we asked for it
REFUSED_WORDS: Final = frozenset({"failed", "undelivered"})

# ValidityPeriod takes whole seconds from 1 to 36000 (twilio-python 9.13.0, create()). Whether a larger
# one is refused or cut was not tried: we never send one.
LONGEST_VALIDITY_SECONDS: Final = 36_000

# How Twilio repeats a callback is written behind its URL: five times, after every kind of
# failure. It keeps the fragment to itself: neither sent to us nor signed.
REPEAT: Final = "#rc=5&rp=all"

# One page, newest first: who was written to fifty times since the attempt has other worries.
PAGE_SIZE: Final = 50

ALGORITHMS: Final = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}
PORTS: Final = {"https": 443, "http": 80}


class Twilio(HttpCarrier):
    """Twilio's SMS: no idempotency, but a key in the callback URL and a list to look things up in."""

    name = "twilio"
    capabilities = Capabilities(
        idempotency_key=False,  # I-Twilio-Idempotency-Token is on its calls to us; on a send it does nothing
        reference_echoed=False,
        receipts=Receipts.RELIABLE,
        polls=True,
        cancels=True,
        looks_up=True,
        lookup_conclusive=True,
        validity_period=True,
        settling_for=timedelta(minutes=10),
        horizon_for=timedelta(hours=24),
        confirms_opt_out=True,  # by default for long codes; a toll-free network does it always
        shortest_validity=timedelta(seconds=1),
    )
    # Whatever else stands in the answer is sent back as a text.
    silence = Silence("text/xml", b"<Response/>")

    def __init__(self, route: RouteSettings, **network: Unpack[Network]) -> None:
        super().__init__(route, **network)
        account, token = self.setting("account_sid"), self.credential("auth_token")
        base = self.address("base_url", "https://api.twilio.com")
        self.messages_url = f"{base}/2010-04-01/Accounts/{quote(account, safe='')}/Messages"
        self.client.auth = httpx.BasicAuth(account, token)

    def submit_request(self, submission: Submission) -> httpx.Request:
        """Build the form that creates a message."""
        service = self.route.settings.get("messaging_service_sid")
        seconds = int(submission.valid_for.total_seconds())
        callback = with_query(self.route.receipt_url, f"key={quote(submission.attempt_key, safe='')}")
        form = {
            "To": submission.address,
            **({"MessagingServiceSid": service} if service else {"From": self.route.sender}),
            "Body": submission.body,
            "StatusCallback": callback + REPEAT,
            # Rounded down, so that it ends before the event does; never 0, of which prepare takes care.
            "ValidityPeriod": str(min(max(1, seconds), LONGEST_VALIDITY_SECONDS)),
        }
        return self.client.build_request("POST", f"{self.messages_url}.json", data=form)

    def read_submit(self, response: httpx.Response) -> SendResult:
        """Read a created message, or the code of a refusal."""
        if not response.is_success:
            return _refusal(self.read_code(response))
        message = json_object(response.content)
        if _text(message, "status").lower() in REFUSED_WORDS:
            return _refusal(_error_code(message.get("error_code")))
        return Submitted((_need(message, "sid"),))

    def read_code(self, response: httpx.Response) -> str:
        """Read the code of an error answer."""
        if code := _error_code(json_object(response.content).get("code")):
            return code
        raise KeyError("code")

    def poll(self, remote_id: str) -> PollResult:
        """Ask what became of a message."""
        return self.ask(self.client.build_request("GET", self._message_url(remote_id)), _read_poll)

    def look_up(self, address: str) -> LookUpResult:
        """List by number without a date: date_sent is null while a message is queued, and would hide it."""
        query = {"To": address, "PageSize": str(PAGE_SIZE)}
        return self.ask(self.client.build_request("GET", f"{self.messages_url}.json", params=query), _read_list)

    def cancel(self, remote_id: str) -> CancelResult:
        """Ask for the cancellation of a message that is still queued; one that has left answers an error."""
        form = {"Status": CANCELED}
        return self.ask(self.client.build_request("POST", self._message_url(remote_id), data=form), _read_poll)

    def is_authentic(self, call: Call, *, url: str | None = None) -> bool:
        """Compare the signature over our configured URL: what a proxy says about host and scheme is anyone's."""
        signature = (header(call, "X-Twilio-Signature") or "").encode()
        algorithm, secrets = self._signers(header(call, "X-Twilio-Webhooks-Signature-Settings") or "")
        try:
            signed = _signed_fields(call)
        except ValueError:
            return False
        if algorithm is None or signed is None:
            return False
        base = (url or self.route.receipt_url).partition("?")[0]
        query = b"?" + call.query if call.query else b""
        expected = [
            b64encode(hmac.digest(secret.encode(), place.encode() + query + signed, algorithm))
            for secret, place in product(secrets, _with_and_without_port(base))
        ]
        return any(hmac.compare_digest(signature, one) for one in expected)

    def read_receipt(self, call: Call) -> ReadReceipt:
        """Read a status callback. It carries no time: RawDlrDoneDate has no zone."""
        query = query_values(call)
        fields = query if call.method == "GET" else _body_fields(call)
        remote_id, word = need(fields, "MessageSid", "SmsSid"), need(fields, "MessageStatus", "SmsStatus")
        code = _error_code(fields.get("ErrorCode"))
        report = _read_report(remote_id, word, code)
        token = header(call, "I-Twilio-Idempotency-Token")
        return ReadReceipt(
            reports=(report,) if report else (),
            reference=query.get("key"),
            dedupe_key=same_call(token) if token else same_call(remote_id, word, code),
            address=fields.get("To"),
        )

    def read_inbound(self, call: Call) -> ReadInbound:
        """Read an incoming message. OptOutType comes with Advanced Opt-Out only; the default handling says nothing of itself."""
        fields = query_values(call) if call.method == "GET" else _body_fields(call)
        text, word = fields.get("Body", ""), fields.get("OptOutType", "").upper()
        return ReadInbound(
            address=need(fields, "From"),
            text=text,
            dedupe_key=same_call("inbound", need(fields, "MessageSid", "SmsSid")),
            opts_out=word == "STOP",
            answered=word == "STOP" or text.strip().upper() in OPT_OUT_WORDS,
        )

    def _message_url(self, remote_id: str) -> str:
        return f"{self.messages_url}/{quote(remote_id, safe='')}.json"

    def _signers(self, settings: str) -> tuple[str | None, list[str]]:
        """Find the algorithm that the call names, and the secrets it may be signed with (two while one is replaced)."""
        named = {name.strip(): value.strip() for name, _, value in (part.partition("=") for part in settings.split(","))}
        algorithm = ALGORITHMS.get((named.get("algorithm") or "HMAC_SHA1").upper())
        shared = (f"shared_key_{named.get('key', '')}",)
        names = shared if algorithm == "sha256" else ("auth_token", "auth_token_previous")
        return algorithm, [secret for name in names if (secret := self.route.credentials.get(name))]


def _refusal(code: str | None) -> Refused | Throttled:
    error_class = REFUSALS.get(code or "", ErrorClass.UNCLASSIFIED)
    return Throttled(code=code) if error_class is ErrorClass.THROTTLED else Refused(error_class, code)


def _read_report(remote_id: str, word: str, code: str | None) -> Report | None:
    """Read one status word; None for the words of messages to us."""
    word = word.lower()
    if word in INBOUND:
        return None
    match REPORTS.get(word):
        case None:
            return Report(AttemptState.UNKNOWN, remote_id, error_code=code, reason=Reason.UNKNOWN_WORD)
        case AttemptState.UNKNOWN:
            return Report(AttemptState.UNKNOWN, remote_id, error_code=code, reason=Reason.CARRIER_UNSURE)
        case AttemptState.FAILED if word == CANCELED:
            return Report(AttemptState.FAILED, remote_id, error_code=CANCELED, reason=Reason.CANCELLED)
        case AttemptState.FAILED:
            return Report(AttemptState.FAILED, remote_id, REFUSALS.get(code or "", ErrorClass.UNCLASSIFIED), code)
        case state:  # a code beside success is a warning (30025, 30026)
            return Report(state, remote_id, error_code=code)


def _read_message(message: Mapping[str, object]) -> Report | None:
    return _read_report(_need(message, "sid"), _need(message, "status"), _error_code(message.get("error_code")))


def _read_poll(response: httpx.Response) -> PollResult:
    """Read the answer about one message."""
    message = json_object(response.content)
    if response.status_code == httpx.codes.NOT_FOUND:
        return NoSuchMessage()
    if not response.is_success:
        return Unanswered(_error_code(message.get("code")) or str(response.status_code))
    if report := _read_message(message):
        return report
    raise ValueError("a message to us")


def _read_list(response: httpx.Response) -> LookUpResult:
    """Read a page; one message in it that cannot be read could be the one we look for, and spoils the page."""
    if not response.is_success:
        return Unanswered(str(response.status_code))
    messages = json_object(response.content)["messages"]
    if not isinstance(messages, list):
        raise ValueError("not a list")  # noqa: TRY004 (one error for everything that cannot be read)
    candidates = [candidate for message in messages if (candidate := _read_candidate(message))]
    return sorted(candidates, key=lambda candidate: candidate.created_at, reverse=True)


def _read_candidate(message: object) -> Candidate | None:
    if not isinstance(message, dict):
        raise ValueError("not a message")  # noqa: TRY004 (one error for everything that cannot be read)
    if (report := _read_message(message)) is None:
        return None
    return Candidate(
        remote_id=_need(message, "sid"),
        # A messaging service picks its number late: until then the service is all there is.
        sender=_text(message, "from") or _text(message, "messaging_service_sid"),
        body=_text(message, "body"),
        created_at=_read_date(_need(message, "date_created")),
        report=report,
    )


def _read_date(rfc2822: str) -> datetime:
    read = parsedate_to_datetime(rfc2822)
    if read.tzinfo is None:
        raise ValueError("a time without a zone")
    return read


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _need(fields: Mapping[str, object], name: str) -> str:
    if text := _text(fields, name):
        return text
    raise KeyError(name)


def _error_code(value: object) -> str | None:
    """Read a code: a number in answers, a string in receipts, and null, "" or zeros for none."""
    code = str(value).strip() if isinstance(value, int | str) else ""
    return code if code.strip("0") else None


def _is_json(call: Call) -> bool:
    return (header(call, "Content-Type") or "").lower().startswith("application/json")


def _signed_fields(call: Call) -> bytes | None:
    """Make what a signature covers behind the URL; None when the body is not covered at all."""
    if call.method == "GET" or not call.body:
        return b""
    if not _is_json(call):
        return b"".join((name + value).encode() for name, value in sorted(set(pairs(call.body))))
    # Only its hash in the query ties a JSON body to the signature over the URL.
    claimed = query_values(call).get("bodySHA256", "").encode()
    return b"" if hmac.compare_digest(hashlib.sha256(call.body).hexdigest().encode(), claimed) else None


def _body_fields(call: Call) -> Mapping[str, str]:
    if not _is_json(call):
        return first_values(pairs(call.body))
    return {name: value for name, value in json_object(call.body).items() if isinstance(value, str)}


def _with_and_without_port(url: str) -> Iterable[str]:
    """Write a URL both ways: Twilio signs sometimes with the port and sometimes without."""
    parts = urlsplit(url)
    host = parts.netloc.removesuffix(f":{parts.port}") if parts.port else parts.netloc
    port = parts.port or PORTS.get(parts.scheme)
    return {parts._replace(netloc=host).geturl(), parts._replace(netloc=f"{host}:{port}").geturl()}
