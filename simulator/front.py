"""Twilio's door: one HTTP call in, one plan out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hmac import compare_digest
from urllib.parse import parse_qsl, urlencode, urlsplit

from simulator.book import Submission
from simulator.dialect import Account
from simulator.engine import Engine, Plan, Wanted, refusal

LONGEST_BODY = 1600
LARGEST_PAGE = 1000
E164 = re.compile(r"\+[1-9]\d{6,14}")


@dataclass(frozen=True, slots=True)
class Call:
    """An HTTP call, its credentials already judged."""

    method: str
    path: str
    query: str = ""
    body: str = field(default="", repr=False)
    authorized: bool = True


def is_authorized(account: Account, authorization: str | None) -> bool:
    """Say whether the caller knows the account's token."""
    return compare_digest((authorization or "").encode(), account.authorization.encode())


def answer(engine: Engine, call: Call, *, now: float) -> Plan:
    """Do what one call asks for."""
    messages = engine.account.messages_path
    if not call.authorized:
        return _unauthorized(engine, call, now=now)
    if call.path in (messages, f"{messages}.json"):
        return _collection(engine, call, now=now)
    if call.path.startswith(f"{messages}/"):
        return _member(engine, call, call.path.removeprefix(f"{messages}/").removesuffix(".json"), now=now)
    return Plan(refusal(404, 20404, f"The requested resource {call.path} was not found"))


def _unauthorized(engine: Engine, call: Call, *, now: float) -> Plan:
    if call.method == "POST" and call.path.removesuffix(".json").endswith("/Messages"):
        return engine.refuse(read_submission(_form(call.body)), refusal(401), now=now)
    return Plan(refusal(401))


def _collection(engine: Engine, call: Call, *, now: float) -> Plan:
    if call.method == "POST":
        submission = read_submission(_form(call.body))
        code = find_fault(submission)
        if code is not None:
            return engine.refuse(submission, refusal(400, code), now=now)
        return engine.send(submission, now=now)
    if call.method == "GET":
        try:
            wanted = read_wanted(call.query)
        except ValueError:
            return Plan(refusal(400, 20001, "A date or a page size cannot be read"))
        return engine.find_all(wanted, now=now)
    return Plan(refusal(405))


def _member(engine: Engine, call: Call, sid: str, *, now: float) -> Plan:
    if call.method == "GET":
        return engine.poll(sid, now=now)
    if call.method == "POST" and _form(call.body).get("Status") == "canceled":
        return engine.cancel(sid, now=now)
    if call.method == "POST":
        return Plan(refusal(400, 20001, "Status=canceled is the only change there is"))
    return Plan(refusal(405))


def _form(body: str) -> dict[str, str]:
    return dict(parse_qsl(body, keep_blank_values=True))


def read_submission(form: Mapping[str, str]) -> Submission:
    """Read a send's form as far as it goes; `find_fault` says what is missing."""
    validity = form.get("ValidityPeriod", "")
    return Submission(
        to=form.get("To", ""),
        sender=form.get("From", ""),
        body=form.get("Body", ""),
        receipt_url=form.get("StatusCallback") or None,
        valid_for=float(validity) if validity.isdecimal() else None,
        messaging_service_sid=form.get("MessagingServiceSid") or None,
    )


FAULTS: tuple[tuple[int, Callable[[Submission], bool]], ...] = (
    (21604, lambda s: not s.to),
    (21603, lambda s: not s.sender and s.messaging_service_sid is None),
    (21602, lambda s: not s.body),
    (21211, lambda s: E164.fullmatch(s.to) is None),
    (21617, lambda s: len(s.body) > LONGEST_BODY),
    (21609, lambda s: s.receipt_url is not None and not is_url(s.receipt_url)),
)


def find_fault(submission: Submission) -> int | None:
    """Name the code of what Twilio itself would refuse, whatever the rules say."""
    return next((code for code, is_faulty in FAULTS if is_faulty(submission)), None)


def is_url(value: str) -> bool:
    """Say whether a receipt could be posted there at all."""
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def read_wanted(query: str) -> Wanted:
    """Read a list's query; ValueError when a date or a page size makes no sense."""
    asked = dict(parse_qsl(query, keep_blank_values=True))
    token = asked.pop("PageToken", None)
    asked.pop("Page", None)
    left_from, left_until = _left_between(asked)
    return Wanted(
        query=query,
        next_query=urlencode(asked),
        page_size=min(max(int(asked.get("PageSize", "50")), 1), LARGEST_PAGE),
        to=asked.get("To"),
        sender=asked.get("From"),
        left_from=left_from,
        left_until=left_until,
        after_sid=None if token is None else token.removeprefix("PA"),
    )


def _left_between(asked: Mapping[str, str]) -> tuple[datetime | None, datetime | None]:
    """Read DateSent, DateSent> and DateSent<; each includes its day or second."""
    on = asked.get("DateSent")
    start, end = asked.get("DateSent>", on), asked.get("DateSent<", on)
    return None if start is None else _instant(start)[0], None if end is None else _instant(end)[1]


def _instant(value: str) -> tuple[datetime, datetime]:
    start = datetime.fromisoformat(value)
    start = start if start.tzinfo else start.replace(tzinfo=UTC)
    return start, start + (timedelta(seconds=1) if "T" in value else timedelta(days=1))
