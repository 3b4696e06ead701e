"""Twilio, judged by its own package: what it sends and what it signs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qs, urlencode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twilio.request_validator import HMAC_SHA256, RequestValidator
from twilio.rest import Client

from app.carriers.base import (
    Call,
    Candidate,
    NoSuchMessage,
    Refused,
    Report,
    RouteSettings,
    SendResult,
    Submitted,
    Throttled,
    Unanswered,
    Unknown,
)
from app.carriers.twilio import Twilio
from policy.states import AttemptState
from policy.words import ErrorClass, Reason
from tests.carriers.wire import FAR_AWAY, NOWHERE, RECEIPT_URL, http, peer, submission, twilio_route

ACCOUNT: Final = "AC00000000000000000000000000000000"
FORM: Final = "application/x-www-form-urlencoded"
CREATED: Final = b'{"sid": "SM1", "status": "queued", "error_code": null}'
OLD: Final = "Sun, 01 Mar 2026 11:00:00 +0000"
NEW: Final = "Sun, 01 Mar 2026 12:00:00 +0000"


def answering(status: int, answer: object, seen: list[httpx.Request] | None = None) -> Twilio:
    def respond(request: httpx.Request) -> httpx.Response:
        (seen if seen is not None else []).append(request)
        return httpx.Response(status, json=answer)

    return Twilio(twilio_route(), transport=httpx.MockTransport(respond))


def route_with(**settings: str) -> RouteSettings:
    route = twilio_route()
    return RouteSettings(
        route.id, route.carrier, route.sender, route.receipt_url, {**route.settings, **settings}, route.credentials
    )


def form_of(route: RouteSettings, valid_for: timedelta) -> dict[str, list[str]]:
    with closing(Twilio(route, transport=NOWHERE)) as carrier:
        return parse_qs(carrier.submit_request(submission(valid_for=valid_for)).content.decode())


# What it sends.


def test_it_sends_what_the_official_client_sends() -> None:
    with peer(http(201, CREATED)) as carrier:
        official = Client(ACCOUNT, "token")
        official.api.base_url = carrier.url
        official.messages.create(
            to="+447700900123",
            from_="+15005550006",
            body="Señor, 1 < 2 & 3 😀",
            status_callback=f"{RECEIPT_URL}?key=att-1#rc=5&rp=all",
            validity_period=5400,
        )
        with closing(Twilio(twilio_route(carrier.url))) as ours:
            ours.send(submission("Señor, 1 < 2 & 3 😀"), deadline=FAR_AWAY)

    theirs, mine = carrier.requests
    assert (mine.method, mine.path) == (theirs.method, theirs.path)
    assert mine.headers["authorization"] == theirs.headers["authorization"]
    assert mine.headers["content-type"] == theirs.headers["content-type"]
    assert mine.form == theirs.form


def test_a_messaging_service_stands_in_for_the_sender() -> None:
    form = form_of(route_with(messaging_service_sid="MG1"), timedelta(hours=1))

    assert form["MessagingServiceSid"] == ["MG1"]
    assert "From" not in form


@pytest.mark.parametrize(
    ("left", "sent"),
    [
        (timedelta(0), "1"),
        (timedelta(seconds=-5), "1"),
        (timedelta(seconds=59.9), "59"),
        (timedelta(hours=10), "36000"),
        (timedelta(days=3), "36000"),
    ],
)
def test_the_time_left_goes_along_within_what_twilio_takes(left: timedelta, sent: str) -> None:
    assert form_of(twilio_route(), left)["ValidityPeriod"] == [sent]


# What it reads.

ANSWERS: Final[dict[str, tuple[int, object, SendResult]]] = {
    "taken": (201, {"sid": "SM1", "status": "accepted"}, Submitted(("SM1",))),
    "taken, with a word we do not know": (201, {"sid": "SM1", "status": "teleported"}, Submitted(("SM1",))),
    "no sid": (201, {"status": "queued"}, Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "an empty sid": (201, {"sid": "", "status": "queued"}, Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "a sid that is no text": (201, {"sid": 7, "status": "queued"}, Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "failed at once": (201, {"sid": "SM1", "status": "failed", "error_code": 21610}, Refused(ErrorClass.OPTED_OUT, "21610")),
    "undelivered at once": (201, {"sid": "SM1", "status": "undelivered"}, Refused(ErrorClass.UNCLASSIFIED)),
    "opted out": (400, {"code": 21610, "status": 400}, Refused(ErrorClass.OPTED_OUT, "21610")),
    "a bad number": (400, {"code": 21211}, Refused(ErrorClass.PERMANENT_RECIPIENT, "21211")),
    "too long": (400, {"code": "21617"}, Refused(ErrorClass.PERMANENT_CONTENT, "21617")),
    "a queue that is full": (400, {"code": 21611}, Throttled(code="21611")),
    "a wrong account": (404, {"code": 20404}, Refused(ErrorClass.AUTH_CONFIG, "20404")),
    "a code we do not know": (400, {"code": 99999}, Refused(ErrorClass.UNCLASSIFIED, "99999")),
    "a code of ours": (400, {"code": 21604}, Refused(ErrorClass.UNCLASSIFIED, "21604")),
    "no login": (401, {"code": 20003}, Refused(ErrorClass.AUTH_CONFIG, "20003")),
    "no permission": (403, {"code": 20003}, Refused(ErrorClass.AUTH_CONFIG, "20003")),
    "too many": (429, {"code": 20429}, Throttled(code="20429")),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_read(case: str) -> None:
    status, answer, expected = ANSWERS[case]

    with closing(answering(status, answer)) as carrier:
        assert carrier.send(submission(), deadline=FAR_AWAY) == expected


def test_a_poll_brings_the_state() -> None:
    with closing(answering(200, {"sid": "SM1", "status": "undelivered", "error_code": 30003})) as carrier:
        assert carrier.poll("SM1") == Report(AttemptState.FAILED, "SM1", ErrorClass.TRANSIENT, "30003")


def test_a_message_that_twilio_does_not_know_is_no_such_message() -> None:
    with closing(answering(404, {"code": 20404, "status": 404})) as carrier:
        assert carrier.poll("SM1") == NoSuchMessage()


def test_an_id_cannot_lead_the_poll_elsewhere() -> None:
    seen: list[httpx.Request] = []

    with closing(answering(200, {}, seen)) as carrier:
        carrier.poll("../../Accounts?x=1")

    assert seen[0].url.raw_path.endswith(b"/Messages/..%2F..%2FAccounts%3Fx%3D1.json")


def test_a_cancel_asks_for_the_only_word_there_is() -> None:
    seen: list[httpx.Request] = []

    with closing(answering(200, {"sid": "SM1", "status": "canceled"}, seen)) as carrier:
        result = carrier.cancel("SM1")

    assert result == Report(AttemptState.FAILED, "SM1", error_code="canceled", reason=Reason.CANCELLED)
    assert (seen[0].method, seen[0].content) == ("POST", b"Status=canceled")


def test_a_cancel_that_comes_too_late_is_unanswered() -> None:
    """The answer to a cancel is evidence, not the outcome."""
    with closing(answering(400, {"code": 30409})) as carrier:
        assert carrier.cancel("SM1") == Unanswered("30409")


def message(sid: str, at: str, more: Mapping[str, object] | None = None) -> dict[str, object]:
    return {
        "sid": sid,
        "status": "sent",
        "from": "+15005550006",
        "body": "hello",
        "date_created": at,
        "error_code": None,
        **(more or {}),
    }


def test_a_look_up_lists_what_twilio_took_newest_first() -> None:
    seen: list[httpx.Request] = []
    page = {"messages": [message("SM1", OLD), message("SM2", NEW), message("SM3", NEW, {"status": "received"})]}

    with closing(answering(200, page, seen)) as carrier:
        found = carrier.look_up("+447700900123")

    assert found == [
        Candidate("SM2", "+15005550006", "hello", datetime(2026, 3, 1, 12, tzinfo=UTC), Report(AttemptState.SUBMITTED, "SM2")),
        Candidate("SM1", "+15005550006", "hello", datetime(2026, 3, 1, 11, tzinfo=UTC), Report(AttemptState.SUBMITTED, "SM1")),
    ]
    assert dict(seen[0].url.params) == {"To": "+447700900123", "PageSize": "50"}


@pytest.mark.parametrize("spoiled", [{"sid": None}, {"date_created": None}, {"date_created": "yesterday"}, {"status": ""}])
def test_a_page_with_one_unreadable_message_is_no_page(spoiled: Mapping[str, object]) -> None:
    """It could be the one we look for: "not found" would then let a second text go out."""
    page = {"messages": [message("SM1", OLD), message("SM2", NEW, spoiled)]}

    with closing(answering(200, page)) as carrier:
        assert carrier.look_up("+447700900123") == Unanswered("unreadable_answer")


# What it signs.


def form_call(params: dict[str, str] | list[tuple[str, str]], signature: str, query: str = "key=att-1", **headers: str) -> Call:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    signed = {"X-Twilio-Signature": signature, "Content-Type": FORM, **named}
    return Call("POST", query.encode(), signed, urlencode(params).encode())


def signed_by_twilio(params: dict[str, str], url: str = f"{RECEIPT_URL}?key=att-1", by: str = "token") -> str:
    return str(RequestValidator(by).compute_signature(url, params))


@settings(deadline=None)  # a busy machine is no fault
@given(st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=8))
def test_whatever_twilio_signs_is_authentic(params: dict[str, str]) -> None:
    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(form_call(params, signed_by_twilio(params)))


@settings(deadline=None)  # a busy machine is no fault
@given(st.dictionaries(st.text(max_size=12), st.text(max_size=30), max_size=8))
def test_whatever_twilio_signs_with_a_shared_key_is_authentic(params: dict[str, str]) -> None:
    url = f"{RECEIPT_URL}?key=att-1"
    signature = str(RequestValidator("shared").compute_signature(url, params, HMAC_SHA256))
    settings = {"X_Twilio_Webhooks_Signature_Settings": "key=k1,algorithm=HMAC_SHA256"}

    with closing(Twilio(twilio_route(shared_key_k1="shared"), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(form_call(params, signature, **settings))


class Repeated(dict[str, list[str]]):
    """Repeated parameters the way the validator takes them."""

    def getlist(self, name: str) -> list[str]:
        """Get the values of one name."""
        return self[name]


@settings(deadline=None)  # a busy machine is no fault
@given(st.dictionaries(st.text(max_size=6), st.lists(st.text(max_size=6), min_size=1, max_size=4), max_size=4))
def test_repeated_parameters_are_signed_once_each_and_sorted(params: dict[str, list[str]]) -> None:
    signature = str(RequestValidator("token").compute_signature(f"{RECEIPT_URL}?key=att-1", Repeated(params)))
    call = form_call([(name, value) for name, values in params.items() for value in values], signature)

    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(call)


@pytest.mark.parametrize("configured", ["https://h.test", "https://h.test:8443", "http://h.test:8080", "http://h.test"])
@pytest.mark.parametrize("signed", ["with_port", "without_port"])
def test_the_port_may_be_signed_or_not(configured: str, signed: str) -> None:
    ports = {"https://h.test": "https://h.test:443", "http://h.test": "http://h.test:80"}
    hosts = {"with_port": ports.get(configured, configured), "without_port": configured.rpartition(":8")[0] or configured}
    signature = signed_by_twilio({"a": "b"}, f"{hosts[signed]}/r?key=att-1")

    with closing(Twilio(twilio_route(receipt_url=f"{configured}/r"), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(form_call({"a": "b"}, signature))


def test_the_secret_before_this_one_is_still_believed() -> None:
    """While a secret is replaced, calls come signed with either."""
    signature = signed_by_twilio({"a": "b"}, by="old")

    with closing(Twilio(twilio_route(auth_token_previous="old"), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(form_call({"a": "b"}, signature))


def test_a_json_body_is_tied_by_its_hash() -> None:
    body = json.dumps({"MessageSid": "SM1", "MessageStatus": "delivered"}).encode()
    query = f"key=att-1&bodySHA256={hashlib.sha256(body).hexdigest()}"
    headers = {"X-Twilio-Signature": signed_by_twilio({}, f"{RECEIPT_URL}?{query}"), "Content-Type": "application/json"}
    call = Call("POST", query.encode(), headers, body)

    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        assert RequestValidator("token").validate(f"{RECEIPT_URL}?{query}", body.decode(), headers["X-Twilio-Signature"])
        assert carrier.is_authentic(call)
        assert carrier.read_receipt(call).reports == (Report(AttemptState.DELIVERED, "SM1"),)
        assert not carrier.is_authentic(Call("POST", query.encode(), headers, body + b" "))


def test_a_json_body_without_a_hash_is_not_covered() -> None:
    headers = {"X-Twilio-Signature": signed_by_twilio({}), "Content-Type": "application/json"}

    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        assert not carrier.is_authentic(Call("POST", b"key=att-1", headers, b'{"MessageSid": "SM1"}'))


def test_a_call_by_get_is_signed_by_its_url() -> None:
    query = "key=att-1&MessageSid=SM1&MessageStatus=sent"
    call = Call("GET", query.encode(), {"x-twilio-signature": signed_by_twilio({}, f"{RECEIPT_URL}?{query}")}, b"")

    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        assert carrier.is_authentic(call)
        assert carrier.read_receipt(call).reports == (Report(AttemptState.SUBMITTED, "SM1"),)


FORGERIES: Final = {
    "no signature": form_call({"a": "b"}, ""),
    "another secret": form_call({"a": "b"}, signed_by_twilio({"a": "b"}, by="guess")),
    "another parameter": form_call({"a": "c"}, signed_by_twilio({"a": "b"})),
    "another attempt": form_call({"a": "b"}, signed_by_twilio({"a": "b"}), query="key=att-2"),
    "a signature that is no ASCII": form_call({"a": "b"}, "é"),
    "an algorithm nobody knows": form_call(
        {"a": "b"}, signed_by_twilio({"a": "b"}), X_Twilio_Webhooks_Signature_Settings="key=k1,algorithm=HMAC_MD5"
    ),
    "a shared key we do not have": form_call(
        {"a": "b"}, signed_by_twilio({"a": "b"}), X_Twilio_Webhooks_Signature_Settings="key=k2,algorithm=HMAC_SHA256"
    ),
    "a host that a proxy claims": form_call(
        {"a": "b"}, signed_by_twilio({"a": "b"}, "https://evil.test/v1/receipts/a1?key=att-1"), X_Forwarded_Host="evil.test"
    ),
    "a body that is no text": Call("POST", b"key=att-1", {"X-Twilio-Signature": "x", "Content-Type": FORM}, b"\xff\xfe"),
}


@pytest.mark.parametrize("case", FORGERIES)
def test_a_forged_call_is_not_authentic(case: str) -> None:
    with closing(Twilio(twilio_route(shared_key_k1="shared"), transport=NOWHERE)) as carrier:
        assert not carrier.is_authentic(FORGERIES[case])


def test_an_inbound_word_is_no_news() -> None:
    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        receipt = carrier.read_receipt(form_call({"MessageSid": "SM1", "MessageStatus": "received"}, ""))

    assert receipt.reports == ()


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"MessageStatus": "failed", "ErrorCode": "30003"}, {"MessageStatus": "failed", "ErrorCode": "30003"}, True),
        ({"MessageStatus": "failed", "ErrorCode": "30003"}, {"MessageStatus": "failed", "ErrorCode": "30005"}, False),
        ({"MessageStatus": "sent"}, {"MessageStatus": "delivered"}, False),
    ],
)
def test_without_a_token_a_call_is_known_by_what_it_says(first: dict[str, str], second: dict[str, str], same: bool) -> None:  # noqa: FBT001
    with closing(Twilio(twilio_route(), transport=NOWHERE)) as carrier:
        keys = [carrier.read_receipt(form_call({"MessageSid": "SM1", **said}, "")).dedupe_key for said in (first, second)]

    assert (keys[0] == keys[1]) is same
