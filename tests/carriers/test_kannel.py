"""Kannel's adapter on its own: what it sends, and what it makes of texts, bits and words."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from app.carriers.base import Call, Refused, Report, SendResult, Submitted, Throttled, Unknown
from app.carriers.http import RouteMisconfigured
from app.carriers.kannel import Kannel
from policy.states import AttemptState
from policy.words import ErrorClass, Reason
from tests.carriers.wire import FAR_AWAY, NOWHERE, RECEIPT_URL, kannel_route, submission

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)


def request_of(body: str, *, valid_for: timedelta = timedelta(minutes=90), **settings: str) -> httpx.Request:
    with closing(Kannel(kannel_route(settings=settings), transport=NOWHERE)) as carrier:
        request = carrier.submit_request(submission(body, valid_for=valid_for))
    assert isinstance(request, httpx.Request)
    return request


def sent(body: str, **settings: str) -> SendResult:
    transport = httpx.MockTransport(lambda _: httpx.Response(202, text="0: Accepted for delivery"))
    with closing(Kannel(kannel_route(settings=settings), transport=transport)) as carrier:
        return carrier.send(submission(body), deadline=FAR_AWAY)


def call(**fields: str) -> Call:
    return Call("GET", urlencode({"key": "att-1", "tok": "tok-1", "ts": "1772366400", **fields}).encode(), {}, b"")


def report_of(**fields: str) -> Report:
    with closing(Kannel(kannel_route(), transport=NOWHERE)) as carrier:
        (report,) = carrier.read_receipt(call(**fields)).reports
    return report


# What it sends.


def test_secrets_and_text_travel_in_headers_and_body_never_in_the_url() -> None:
    request = request_of("A seat opened.", smsc="smpp1")

    assert request.method == "POST"
    assert request.url.query == b""
    assert request.content == b"A seat opened."
    assert request.headers["Content-Type"] == "text/plain; charset=UTF-8"
    assert {name: value for name, value in request.headers.items() if name.startswith("x-kannel-")} == {
        "x-kannel-username": "app",
        "x-kannel-password": "apppw",
        "x-kannel-from": "+15005550006",
        "x-kannel-to": "+447700900123",
        "x-kannel-smsc": "smpp1",
        "x-kannel-coding": "0",
        "x-kannel-validity": "90",
        "x-kannel-dlr-mask": "31",
        "x-kannel-dlr-url": f"{RECEIPT_URL}?key=att-1&tok=tok-1&type=%d&fid=%F&reply=%A&ts=%T",
    }


@pytest.mark.parametrize(("body", "coding"), [("é, € and @", "0"), ("Привет", "2"), ("ok 😀", "2"), ("a\u00b2", "2")])
def test_text_outside_gsm_7_is_sent_as_ucs_2(body: str, coding: str) -> None:
    """Without it Kannel puts a question mark for every such character and says nothing."""
    request = request_of(body)

    assert request.headers["X-Kannel-Coding"] == coding
    assert request.content.decode() == body


@pytest.mark.parametrize(
    ("left", "minutes"),
    [(timedelta(0), "1"), (timedelta(seconds=59), "1"), (timedelta(seconds=179), "2"), (timedelta(hours=2), "120")],
)
def test_the_time_left_goes_along_in_minutes(left: timedelta, minutes: str) -> None:
    assert request_of("hello", valid_for=left).headers["X-Kannel-Validity"] == minutes


@pytest.mark.parametrize(
    ("body", "parts", "expected"),
    [
        ("x" * 160, "1", Submitted()),
        ("x" * 161, "1", Refused(ErrorClass.PERMANENT_CONTENT, "too_long")),
        ("x" * 306, "2", Submitted()),
        ("x" * 307, "2", Refused(ErrorClass.PERMANENT_CONTENT, "too_long")),
        ("я" * 71, "1", Refused(ErrorClass.PERMANENT_CONTENT, "too_long")),
    ],
)
def test_what_kannel_would_cut_is_refused(body: str, parts: str, expected: SendResult) -> None:
    """It cuts without a word and reports the rest delivered."""
    assert sent(body, max_messages=parts) == expected


def test_a_receipt_url_survives_kannels_escapes() -> None:
    """Kannel reads %C3 as its escape %C, and %P as the phone number."""
    with closing(
        Kannel(kannel_route(receipt_url=f"{RECEIPT_URL}?r=%C3%A9", receipt_token="a%P b"), transport=NOWHERE)
    ) as carrier:
        request = carrier.submit_request(submission())

    assert isinstance(request, httpx.Request)
    url = request.headers["X-Kannel-DLR-URL"]
    assert parse_qs(urlsplit(url.replace("%%", "%")).query)["tok"] == ["a%P b"]
    assert url.startswith(f"{RECEIPT_URL}?r=%%C3%%A9&key=att-1&tok=a%%25P%%20b&type=%d")


@pytest.mark.parametrize("wrong", [{"smsc": "a\nb"}, {"smsc": "é"}, {"max_messages": "0"}, {"max_messages": "many"}])
def test_a_route_that_cannot_be_written_in_headers_does_not_open(wrong: dict[str, str]) -> None:
    with pytest.raises(RouteMisconfigured):
        Kannel(kannel_route(settings=wrong))


# What it reads.

DENIED: Final = "Number(s) has/have been denied by white- and/or black-lists."
BUSY: Final = "Temporal failure, try again later."

ANSWERS: Final[dict[str, tuple[int, str, SendResult]]] = {
    "taken": (202, "0: Accepted for delivery", Submitted()),
    "queued": (202, "3: Queued for later delivery", Submitted()),
    "taken without waiting": (202, "Sent. Message splits: 2", Submitted()),
    "a 202 of somebody else's": (202, "OK", Unknown(Reason.UNREADABLE_ANSWER, "202")),
    "a 200": (200, "0: Accepted for delivery", Unknown(Reason.UNREADABLE_ANSWER, "200")),
    "a wrong password": (
        403,
        "Authorization failed for sendsms",
        Refused(ErrorClass.AUTH_CONFIG, "Authorization failed for sendsms"),
    ),
    "no way there": (403, "Not routable. Do not try again.", Refused(ErrorClass.AUTH_CONFIG, "Not routable. Do not try again.")),
    "a page of a proxy's": (403, "<html>", Refused(ErrorClass.AUTH_CONFIG, "403")),
    "a denied number": (400, DENIED, Refused(ErrorClass.PERMANENT_RECIPIENT, DENIED)),
    "our mistake": (
        400,
        "DLR-Mask field misformed, rejected",
        Refused(ErrorClass.UNCLASSIFIED, "DLR-Mask field misformed, rejected"),
    ),
    "a text we do not know": (400, "Moon in the wrong phase", Refused(ErrorClass.UNCLASSIFIED, "400")),
    "a wrong path": (404, "Unknown request.", Refused(ErrorClass.UNCLASSIFIED, "404")),
    "a full queue": (503, BUSY, Throttled(code="503")),
    "another 503": (503, "<html>", Unknown(Reason.CARRIER_FAULT, "503")),
    "a fault": (500, "Sending failed.", Unknown(Reason.CARRIER_FAULT, "500")),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_read(case: str) -> None:
    status, text, expected = ANSWERS[case]
    transport = httpx.MockTransport(lambda _: httpx.Response(status, text=text))

    with closing(Kannel(kannel_route(), transport=transport)) as carrier:
        assert carrier.send(submission(), deadline=FAR_AWAY) == expected


FAILED, UNKNOWN = AttemptState.FAILED, AttemptState.UNKNOWN
UNCLASSIFIED, TRANSIENT = ErrorClass.UNCLASSIFIED, ErrorClass.TRANSIENT

CALLS: Final[dict[str, tuple[dict[str, str], Report]]] = {
    "a failure without a text": ({"type": "2"}, Report(FAILED, error_class=UNCLASSIFIED)),
    "a failure without an error": ({"type": "2", "reply": "stat:UNDELIV"}, Report(FAILED, None, UNCLASSIFIED, "UNDELIV")),
    "a rejection": ({"type": "2", "reply": "id:1 stat:REJECTD err:008 text:"}, Report(FAILED, None, UNCLASSIFIED, "REJECTD/008")),
    "a passing error": ({"type": "2", "reply": "stat:UNDELIV err:027 text:"}, Report(FAILED, None, TRANSIENT, "UNDELIV/027")),
    "the word in the text of another": (
        {"type": "2", "reply": "stat:UNDELIV err:006 text:stat:UNKNOWN"},
        Report(FAILED, None, TRANSIENT, "UNDELIV/006"),
    ),
    "expired, without a text": ({"type": "34"}, Report(FAILED, error_class=TRANSIENT)),
    "unsure": ({"type": "66"}, Report(UNKNOWN, reason=Reason.CARRIER_UNSURE)),
    "a bit we do not know, with failed": ({"type": "130"}, Report(FAILED, error_class=UNCLASSIFIED)),
    "a bit we do not know": ({"type": "128"}, Report(UNKNOWN, reason=Reason.UNKNOWN_WORD)),
    "a contradiction": (
        {"type": "2", "reply": "stat:DELIVRD err:000"},
        Report(UNKNOWN, None, None, "DELIVRD/000", Reason.UNKNOWN_WORD),
    ),
    "a bare refusal": ({"type": "16", "reply": "NACK/"}, Report(FAILED, error_class=UNCLASSIFIED)),
    "a refusal in words": ({"type": "16", "reply": "NACK/+447700900123 is gone"}, Report(FAILED, error_class=UNCLASSIFIED)),
    "a refusal we do not know": (
        {"type": "16", "reply": "NACK/0x000000ff/Whatever"},
        Report(FAILED, None, UNCLASSIFIED, "0x000000ff"),
    ),
    "a wrong sender": (
        {"type": "16", "reply": "NACK/0x0000000a/Invalid Source Address"},
        Report(FAILED, None, ErrorClass.AUTH_CONFIG, "0x0000000a"),
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_call_is_read(case: str) -> None:
    fields, expected = CALLS[case]

    report = report_of(**fields)

    assert report == Report(expected.state, None, expected.error_class, expected.error_code, expected.reason, source_at=NOON)


@pytest.mark.parametrize("at", ["", "yesterday", "9" * 40, "-1", "\u0663"])
def test_a_time_that_is_none_is_left_out(at: str) -> None:
    assert report_of(type="1", ts=at).source_at is None


@pytest.mark.parametrize("fields", [{"type": ""}, {"type": "one"}, {"key": "", "type": "1"}])
def test_a_call_without_key_or_type_cannot_be_used(fields: dict[str, str]) -> None:
    with closing(Kannel(kannel_route(), transport=NOWHERE)) as carrier, pytest.raises((KeyError, ValueError)):
        carrier.read_receipt(call(**fields))


@pytest.mark.parametrize("token", ["tok-1", "tok-0"])
def test_the_token_and_the_one_before_it_are_believed(token: str) -> None:
    with closing(Kannel(kannel_route(receipt_token_previous="tok-0"), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(call(tok=token))


@pytest.mark.parametrize("query", [b"", b"tok=", b"tok=tok-2", b"tok=TOK-1", b"tok=%C3%A9", b"tok=\xff"])
def test_no_other_token_is(query: bytes) -> None:
    with closing(Kannel(kannel_route(receipt_token_previous=""), transport=NOWHERE)) as carrier:
        assert not carrier.is_authentic(Call("GET", query, {}, b""))
