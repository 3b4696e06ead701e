"""How Twilio writes: messages, errors, lists, receipts and signatures (carriers.md section 1)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from hashlib import sha1, sha256
from hmac import new as hmac_new
from urllib.parse import urldefrag, urlencode

from policy.segments import count
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.book import Message, Receipt
from simulator.rules import Signature

API = "2010-04-01"
JSON = ("Content-Type", "application/json")

TITLES = {
    20001: "Bad request",
    20003: "Authenticate",
    20004: "Method not allowed",
    20404: "The requested resource was not found",
    20429: "Too Many Requests",
    20500: "An internal server error has occurred",
    20503: "Service unavailable",
    21211: "Invalid 'To' Phone Number",
    21212: "Invalid 'From' Phone Number",
    21408: "Permission to send an SMS has not been enabled for the region indicated by the 'To' number",
    21602: "Message body is required.",
    21603: "A 'From' phone number is required.",
    21604: "A 'To' phone number is required.",
    21609: "The 'StatusCallback' URL is not a valid URL.",
    21610: "Attempt to send to unsubscribed recipient",
    21611: "This 'From' number has exceeded the maximum number of queued messages",
    21614: "'To' number is not a valid mobile number",
    21617: "The concatenated message body exceeds the 1600 character limit.",
    30003: "Unreachable destination handset",
    30005: "Unknown destination handset",
    30007: "Message filtered",
    30008: "Unknown error",
    30036: "Validity Period Expired",
    30409: "This message cannot be canceled",
}
CODE_OF_STATUS = {401: 20003, 404: 20404, 405: 20004, 429: 20429, 500: 20500, 503: 20503}


@dataclass(frozen=True, slots=True)
class Account:
    """Who may call us, and what receipts are signed with."""

    sid: str = DEVELOPMENT_ACCOUNT_SID
    auth_token: str = field(default=DEVELOPMENT_AUTH_TOKEN, repr=False)
    shared_key_id: str = "webhooks_sharedkey_daybook"
    shared_key_secret: str = field(default="daybook0development0shared0key00", repr=False)

    @property
    def messages_path(self) -> str:
        """The path of the account's messages, without a suffix."""
        return f"/{API}/Accounts/{self.sid}/Messages"

    @property
    def authorization(self) -> str:
        """The Authorization header of whoever knows the token."""
        return "Basic " + b64encode(f"{self.sid}:{self.auth_token}".encode()).decode()


@dataclass(frozen=True, slots=True)
class Inbound:
    """What somebody writes to a number of the account's."""

    sender: str
    to: str
    text: str
    opt_out_type: str | None = None
    """What Advanced Opt-Out took it for."""
    signature: Signature = Signature.RIGHT


@dataclass(frozen=True, slots=True)
class ReceiptCall:
    """A receipt, or a text that somebody wrote, as it goes over the wire."""

    url: str
    headers: Mapping[str, str]
    body: bytes


def date(at: float) -> str:
    """Write an instant as RFC 2822, to the second like Twilio."""
    return format_datetime(datetime.fromtimestamp(int(at), UTC))


def message_json(account: Account, message: Message, *, now: float) -> dict[str, object]:
    """Write a message as it stands now."""
    step, left_at, submission = message.step_at(now), message.left_at(now), message.submission
    path = f"{account.messages_path}/{message.sid}"
    return {
        "account_sid": account.sid,
        "api_version": API,
        "body": submission.body,
        "date_created": date(message.accepted_at),
        "date_sent": None if left_at is None else date(left_at),
        "date_updated": date(step.at),
        "direction": "outbound-api",
        "error_code": step.error_code,
        "error_message": None if step.error_code is None else TITLES.get(step.error_code, "Unknown error"),
        "from": submission.sender or None,
        "messaging_service_sid": submission.messaging_service_sid,
        "num_media": "0",
        "num_segments": str(count(submission.body).segments),
        "price": None,
        "price_unit": "USD",
        "sid": message.sid,
        "status": step.status,
        "subresource_uris": {"media": f"{path}/Media.json"},
        "to": submission.to,
        "uri": f"{path}.json",
    }


def list_json(
    account: Account, messages: Sequence[Message], *, query: str, next_query: str | None, page_size: int, now: float
) -> dict[str, object]:
    """Write one page of messages; the links are relative, as Twilio's are."""
    path = f"{account.messages_path}.json"
    return {
        "end": max(len(messages) - 1, 0),
        "first_page_uri": f"{path}?{query}",
        "messages": [message_json(account, message, now=now) for message in messages],
        "next_page_uri": None if next_query is None else f"{path}?{next_query}",
        "page": 0,
        "page_size": page_size,
        "previous_page_uri": None,
        "start": 0,
        "uri": f"{path}?{query}",
    }


def error_json(status: int, code: int | None = None, message: str | None = None) -> dict[str, object]:
    """Write a refusal."""
    code = code or CODE_OF_STATUS.get(status, 20001 if status < 500 else 20500)  # noqa: PLR2004  4xx or 5xx
    return {
        "code": code,
        "message": message or TITLES.get(code, "Refused"),
        "more_info": f"https://www.twilio.com/docs/errors/{code}",
        "status": status,
    }


def encode(value: object) -> bytes:
    """Write JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def receipt_call(account: Account, message: Message, receipt: Receipt) -> ReceiptCall:
    """Write a receipt, signed over the URL as it was given, without its fragment."""
    url = urldefrag(message.submission.receipt_url or "").url
    form = receipt_form(account, message, receipt)
    headers = {
        "Content-Type": "application/x-www-form-urlencoded; charset=UTF-8",
        "User-Agent": "TwilioProxy/1.1",
        "Accept": "*/*",
    }
    if receipt.idempotency_token is not None:
        headers["I-Twilio-Idempotency-Token"] = receipt.idempotency_token
    return ReceiptCall(url, headers | _signature_headers(account, receipt.signature, url, form), urlencode(form).encode())


def inbound_call(account: Account, url: str, *, sid: str, told: Inbound) -> ReceiptCall:
    """Write a text that somebody wrote to a number of the account's, signed over the URL that it is handed over at."""
    form = {
        "AccountSid": account.sid,
        "ApiVersion": API,
        "Body": told.text,
        "From": told.sender,
        "MessageSid": sid,
        "NumMedia": "0",
        "NumSegments": str(count(told.text).segments),
        "SmsMessageSid": sid,
        "SmsSid": sid,
        "SmsStatus": "received",
        "To": told.to,
    }
    if told.opt_out_type is not None:
        form["OptOutType"] = told.opt_out_type
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=UTF-8", "User-Agent": "TwilioProxy/1.1"}
    return ReceiptCall(url, headers | _signature_headers(account, told.signature, url, form), urlencode(form).encode())


def receipt_form(account: Account, message: Message, receipt: Receipt) -> dict[str, str]:
    """Fill in the parameters of a receipt."""
    form = {
        "AccountSid": account.sid,
        "ApiVersion": API,
        "From": message.submission.sender,
        "MessageSid": message.sid,
        "MessageStatus": receipt.status,
        "SmsSid": message.sid,
        "SmsStatus": receipt.status,
        "To": message.submission.to,
    }
    if message.submission.messaging_service_sid is not None:
        form["MessagingServiceSid"] = message.submission.messaging_service_sid
    if receipt.error_code is not None:
        form |= {"ErrorCode": str(receipt.error_code), "ErrorMessage": TITLES.get(receipt.error_code, "Unknown error")}
    return {name: value for name, value in form.items() if name not in receipt.without}


def _signature_headers(account: Account, signature: Signature, url: str, form: Mapping[str, str]) -> dict[str, str]:
    match signature:
        case Signature.NONE:
            return {}
        case Signature.RIGHT:
            return {"X-Twilio-Signature": sign(account.auth_token, url, form)}
        case Signature.WRONG:
            return {"X-Twilio-Signature": sign("another" + account.auth_token, url, form)}
        case Signature.SHA256:
            return {
                "X-Twilio-Signature": sign(account.shared_key_secret, url, form, algorithm="HMAC_SHA256"),
                "X-Twilio-Webhooks-Signature-Settings": f"key={account.shared_key_id},algorithm=HMAC_SHA256",
            }


def sign(secret: str, url: str, form: Mapping[str, str], *, algorithm: str = "HMAC_SHA1") -> str:
    """Sign a call: the URL, then each name and value in order of names."""
    signed = url + "".join(name + form[name] for name in sorted(form))
    digest = sha256 if algorithm == "HMAC_SHA256" else sha1
    return b64encode(hmac_new(secret.encode(), signed.encode(), digest).digest()).decode()
