"""Kannel 1.4.5, sendsms and dlr-url (its source, and the real one in tests/peers/kannel, read and run 2026-11-30)."""

from __future__ import annotations

import hmac
import math
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final, Unpack
from urllib.parse import quote

import httpx

from app.carriers.base import (
    Call,
    Capabilities,
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
)
from app.carriers.calls import first_bytes, need, query_values, same_call, with_query
from app.carriers.http import HttpCarrier, Network, RouteMisconfigured
from policy.segments import Encoding, count
from policy.states import AttemptState
from policy.words import ErrorClass, Reason

# The three bodies of a 202. Kannel names no message id in any of them; "Sent." is what it says
# when it is configured not to wait for its bearerbox.
TAKEN: Final = ("0: Accepted for delivery", "3: Queued for later delivery", "Sent.")

NOT_TAKEN: Final = "Temporal failure, try again later."

# theirs: ours. The text is Kannel's only code; what is not in the table stays the bare status,
# because a proxy's page is no code.
REFUSALS: Final = {
    "Authorization failed for sendsms": ErrorClass.AUTH_CONFIG,
    "Not routable. Do not try again.": ErrorClass.AUTH_CONFIG,
    "Number(s) has/have been denied by white- and/or black-lists.": ErrorClass.PERMANENT_RECIPIENT,
    "Empty receiver number not allowed, rejected": ErrorClass.UNCLASSIFIED,
    "Missing receiver(s) number(s), rejected": ErrorClass.UNCLASSIFIED,
    "Sender missing and no global set, rejected": ErrorClass.UNCLASSIFIED,
    "DLR-Mask field misformed, rejected": ErrorClass.UNCLASSIFIED,
    "DLR-URL field misformed, rejected": ErrorClass.UNCLASSIFIED,
    "Coding field misformed, rejected": ErrorClass.UNCLASSIFIED,
    "Validity field misformed, rejected": ErrorClass.UNCLASSIFIED,
    "Charset or body misformed, rejected": ErrorClass.UNCLASSIFIED,
    "Invalid content-type": ErrorClass.UNCLASSIFIED,
}

# The bits of a receipt's %d.
FAILED, REFUSED, ALL = 2, 16, 31
EXPIRED: Final = 32 + FAILED  # undocumented; only when the SMSC uses the message_state TLV
UNSURE: Final = 64 + FAILED  # undocumented as well

# theirs: ours. The %d that says all by itself: delivered, buffered, taken by the SMSC.
REPORTS: Final = {1: AttemptState.DELIVERED, 4: AttemptState.SUBMITTED, 8: AttemptState.SUBMITTED}

# The stat words that a failed %d may be believed with: Kannel says "failed" for UNKNOWN too, and
# for every word that it has not heard of.
FAILURES: Final = frozenset({"UNDELIV", "REJECTD", "DELETED", "EXPIRED"})

# theirs: ours. The err of a failed receipt; up to the SMSC, usually GSM's.
GSM_ERRORS: Final = {
    **dict.fromkeys(("001", "005", "009", "011"), ErrorClass.PERMANENT_RECIPIENT),
    **dict.fromkeys(("006", "027", "031", "032", "033", "034"), ErrorClass.TRANSIENT),
}

# theirs: ours. What the SMSC, or Kannel for it, answered to the submit.
NACKS: Final = {
    "0x0000000a": ErrorClass.AUTH_CONFIG,  # invalid source address
    "0x0000000b": ErrorClass.PERMANENT_RECIPIENT,  # invalid destination address
    "0x0000000d": ErrorClass.AUTH_CONFIG,  # bind failed
    "0x00000014": ErrorClass.TRANSIENT,  # queue full; Kannel repeats it inside before it gives up
    "0x00000058": ErrorClass.TRANSIENT,  # throttled, likewise
    "Retries Exceeded": ErrorClass.TRANSIENT,
    "no SMSC": ErrorClass.AUTH_CONFIG,
}

STAT: Final = re.compile(r"\bstat:([A-Za-z]{1,10})\b(?:\s+err:([0-9A-Za-z]{1,8})\b)?")
HEX_CODE: Final = re.compile(r"0x[0-9a-f]{8}")
MAX_UNIX_DIGITS: Final = 10  # until the year 2286

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Kannel(HttpCarrier):
    """A Kannel gateway of one's own: no message id, no look-up; the receipt's URL is the only thread."""

    name = "kannel"
    capabilities = Capabilities(
        idempotency_key=False,
        reference_echoed=False,
        receipts=Receipts.RELIABLE,
        polls=False,
        cancels=False,
        looks_up=False,
        lookup_conclusive=False,
        validity_period=True,
        settling_for=timedelta(0),  # nobody can ask
        horizon_for=timedelta(hours=24),
        shortest_validity=timedelta(minutes=1),
    )
    # An empty body is what Kannel texts nobody for where its sms-service says `omit-empty = true`.
    silence = Silence("text/plain", b"")

    def __init__(self, route: RouteSettings, **network: Unpack[Network]) -> None:
        super().__init__(route, **network)
        self.url = self.address("base_url")
        self.max_messages = _parts(route.settings.get("max_messages", "1"))
        self.receipt_token = self.credential("receipt_token")
        self.headers = {
            "X-Kannel-Username": self.credential("username"),
            "X-Kannel-Password": self.credential("password"),
            "X-Kannel-From": route.sender,
            "X-Kannel-DLR-Mask": str(ALL),
            "Content-Type": "text/plain; charset=UTF-8",
        }
        if smsc := route.settings.get("smsc"):
            self.headers["X-Kannel-SMSC"] = smsc
        if not all(value.isascii() and value.isprintable() for value in (*self.headers.values(), route.receipt_url)):
            raise RouteMisconfigured("Kannel's settings travel as headers: printable ASCII only")

    def submit_request(self, submission: Submission) -> httpx.Request | Refused:
        """Build the POST form of sendsms: its query would put password, text and token into access logs."""
        segments = count(submission.body)
        if segments.segments > self.max_messages:
            # Kannel cuts what exceeds its user's max-messages without a word, and reports it delivered.
            return Refused(ErrorClass.PERMANENT_CONTENT, "too_long")
        minutes = math.floor(submission.valid_for / timedelta(minutes=1))
        headers = {
            **self.headers,
            "X-Kannel-To": submission.address,
            # Without coding 2 Kannel turns every character outside GSM-7 into "?" and says nothing.
            "X-Kannel-Coding": "2" if segments.encoding is Encoding.UCS_2 else "0",
            # Rounded down, so that it ends before the event does. 0 would have run out on arrival; prepare hands nothing
            # off that has less than a minute.
            "X-Kannel-Validity": str(max(1, minutes)),
            "X-Kannel-DLR-URL": self._dlr_url(submission.attempt_key),
        }
        return self.client.build_request("POST", self.url, headers=headers, content=submission.body.encode())

    def read_submit(self, response: httpx.Response) -> SendResult:
        """Read a 202 or a 400."""
        if response.status_code == httpx.codes.ACCEPTED and response.text.startswith(TAKEN):
            return Submitted()
        code = self.read_code(response)
        if response.is_client_error:
            return Refused(REFUSALS[code], code)
        raise ValueError("neither taken nor refused")

    def read_code(self, response: httpx.Response) -> str:
        """Read the text of a refusal that we know."""
        text = response.text.strip()
        if text not in REFUSALS:
            raise ValueError("not a text of Kannel's")
        return text

    def is_not_taken(self, response: httpx.Response) -> bool:
        """Say whether Kannel's own queue was full; a proxy's 503 has another body and means nothing."""
        return response.status_code == httpx.codes.SERVICE_UNAVAILABLE and response.text.strip() == NOT_TAKEN

    def is_authentic(self, call: Call, *, url: str | None = None) -> bool:  # noqa: ARG002 (the token is the same at each)
        """Compare the token that stands in the URL: Kannel signs nothing."""
        try:
            token = query_values(call).get("tok", "").encode()
        except ValueError:
            return False
        accepted = (self.receipt_token, self.route.credentials.get("receipt_token_previous"))
        return any(hmac.compare_digest(token, known.encode()) for known in accepted if known)

    def read_receipt(self, call: Call) -> ReadReceipt:
        """Read a call to our dlr-url."""
        fields = query_values(call)
        key, kind, fid = need(fields, "key"), need(fields, "type"), fields.get("fid", "")
        reply, at = fields.get("reply", ""), fields.get("ts", "")
        report = replace(_read_report(int(kind), reply), remote_id=fid or None, source_at=_read_time(at))
        return ReadReceipt((report,), reference=key, dedupe_key=same_call(key, fid, kind, at, reply))

    def read_inbound(self, call: Call) -> ReadInbound:
        """Read a call to the get-url of an sms-service: tok=…&from=%p&to=%P&id=%I&charset=%C&text=%b."""
        fields = first_bytes(call)
        sender, text = need(fields, b"from").decode(), fields.get(b"text", b"")
        known = same_call("inbound", fields[b"id"].decode()) if fields.get(b"id") else None
        # Without an id the second it was written in tells a text from its repetition (`at=%T`).
        parts = (fields.get(name, b"").hex() for name in (b"from", b"to", b"at", b"text"))
        return ReadInbound(sender, _decoded(text, fields.get(b"charset", b"")), known or same_call("inbound", *parts))

    def _dlr_url(self, attempt_key: str) -> str:
        """Make the URL of an attempt's receipts; Kannel fills in its own escapes and encodes what it puts there."""
        ours = f"key={quote(attempt_key, safe='')}&tok={quote(self.receipt_token, safe='')}"
        # Kannel reads any %-letter as an escape, also the %C3 of an encoded character, and would
        # put the phone number where we wrote %P: a doubled sign comes out as one.
        url = with_query(self.route.receipt_url, ours).replace("%", "%%")
        return f"{url}&type=%d&fid=%F&reply=%A&ts=%T"


def _decoded(text: bytes, charset: bytes) -> str:
    """Decode %b, the text as it came, by its %C; what does not decode is read as far as it does."""
    name = charset.decode(errors="replace").strip() or "utf-8"
    try:
        return text.decode(name, errors="replace")
    except LookupError:  # GSM, 8-BIT: by then Kannel has made UTF-8 of it
        return text.decode(errors="replace")


def _parts(value: str) -> int:
    if not (value.isascii() and value.isdigit() and int(value)):
        raise RouteMisconfigured("the route's max_messages is no number of parts")
    return int(value)


def _read_report(kind: int, reply: str) -> Report:
    """Read the %d and the reply beside it."""
    if state := REPORTS.get(kind):
        return Report(state)
    if kind == REFUSED:
        nack = _read_nack(reply)
        return Report(AttemptState.FAILED, error_class=NACKS.get(nack or "", ErrorClass.UNCLASSIFIED), error_code=nack)
    if kind & FAILED:
        return _read_failure(kind, reply)
    return Report(AttemptState.UNKNOWN, reason=Reason.UNKNOWN_WORD)


def _read_failure(kind: int, reply: str) -> Report:
    """Read what Kannel calls failed: the SMSC's own word in the reply is the truth."""
    word, err = _read_stat(reply)
    code = "/".join(part for part in (word, err) if part) or None
    if kind == UNSURE or word == "UNKNOWN":
        return Report(AttemptState.UNKNOWN, error_code=code, reason=Reason.CARRIER_UNSURE)
    if kind == EXPIRED or word == "EXPIRED":
        return Report(AttemptState.FAILED, error_class=ErrorClass.TRANSIENT, error_code=code)
    if word and word not in FAILURES:
        return Report(AttemptState.UNKNOWN, error_code=code, reason=Reason.UNKNOWN_WORD)
    return Report(AttemptState.FAILED, error_class=GSM_ERRORS.get(err, ErrorClass.UNCLASSIFIED), error_code=code)


def _read_nack(reply: str) -> str | None:
    """Read the second part of "NACK/code/text"; free text of the SMSC stays in the raw call, it may be anything."""
    _, _, rest = reply.partition("/")
    code = rest.partition("/")[0].strip()
    return code if code in NACKS or HEX_CODE.fullmatch(code) else None


def _read_stat(reply: str) -> tuple[str, str]:
    """Read the word and error of "id:.. stat:WORD err:NNN text:"; empty where an SMSC gives no such text."""
    found = STAT.search(reply)
    return (found[1].upper(), found[2] or "") if found else ("", "")


def _read_time(unix: str) -> datetime | None:
    """Read Kannel's clock (not the SMSC's, which has minutes and no zone)."""
    if not (unix.isascii() and unix.isdigit() and len(unix) <= MAX_UNIX_DIGITS):
        return None
    return EPOCH + timedelta(seconds=int(unix))
