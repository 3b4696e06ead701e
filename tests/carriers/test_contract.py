"""Every carrier, in every way the network fails: what a send comes to, and that it went out at most once."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from datetime import timedelta
from functools import partial
from typing import Final

import httpx
import pytest

from app.carriers.base import NotHandedOff, Refused, RouteSettings, SendResult, Submitted, Throttled, Unanswered, Unknown
from app.carriers.http import MAX_ANSWER_OCTETS, HttpCarrier, RouteMisconfigured, boottime, retry_after
from app.carriers.registry import OVER_HTTP, open_carrier
from policy.words import ErrorClass, Reason
from tests.carriers.wire import FAR_AWAY, Peer, closed_port, http, kannel_route, peer, submission, twilio_route

PATIENT: Final = httpx.Timeout(10.0)  # only a busy machine needs so long
IMPATIENT: Final = httpx.Timeout(10.0, read=0.1)  # for peers that hang

Taken = tuple[bytes, SendResult]
Opened = AbstractContextManager[HttpCarrier]


ROUTES: Final[dict[str, Callable[[str], RouteSettings]]] = {"twilio": twilio_route, "kannel": kannel_route}

ACCEPTED: Final[dict[str, Taken]] = {
    "twilio": (http(201, b'{"sid": "SM1", "status": "queued", "error_code": null}'), Submitted(("SM1",))),
    "kannel": (http(202, b"0: Accepted for delivery"), Submitted()),
}

# What the peer does, and what the send comes to, whoever the carrier is.
WAYS: Final[dict[str, tuple[Callable[[], AbstractContextManager[Peer]], SendResult]]] = {
    "reads, then closes": (partial(peer, None), Unknown(Reason.TIMED_OUT, "RemoteProtocolError")),
    "reads, then hangs": (partial(peer, None, hangs=True), Unknown(Reason.TIMED_OUT, "ReadTimeout")),
    "half an answer": (
        partial(peer, b'HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{"sid'),
        Unknown(Reason.TIMED_OUT, "RemoteProtocolError"),
    ),
    "half an answer, then hangs": (
        partial(peer, b'HTTP/1.1 201 Created\r\nContent-Length: 500\r\n\r\n{"sid', hangs=True),
        Unknown(Reason.TIMED_OUT, "ReadTimeout"),
    ),
    "half a header": (partial(peer, b"HTTP/1.1 201 Cre"), Unknown(Reason.TIMED_OUT, "RemoteProtocolError")),
    "garbage": (partial(peer, b"\x00\xff\x16 garbage\r\n\r\n"), Unknown(Reason.TIMED_OUT, "RemoteProtocolError")),
    "200, empty": (partial(peer, http(200)), Unknown(Reason.UNREADABLE_ANSWER, "200")),
    "202, empty": (partial(peer, http(202)), Unknown(Reason.UNREADABLE_ANSWER, "202")),
    "201, a page": (partial(peer, http(201, b"<html>")), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "201, null": (partial(peer, http(201, b"null")), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "201, a list": (partial(peer, http(201, b"[]")), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "201, an empty object": (partial(peer, http(201, b"{}")), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "201, brackets without end": (partial(peer, http(201, b"[" * 99_999)), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "201, no text": (partial(peer, http(201, b"\xff\xfe")), Unknown(Reason.UNREADABLE_ANSWER, "201")),
    "redirect": (partial(peer, http(307, Location="/again")), Unknown(Reason.UNREADABLE_ANSWER, "307")),
    "429": (partial(peer, http(429, Retry_After="7")), Throttled(timedelta(seconds=7), "429")),
    "401": (partial(peer, http(401)), Refused(ErrorClass.AUTH_CONFIG, "401")),
    "403": (partial(peer, http(403)), Refused(ErrorClass.AUTH_CONFIG, "403")),
    "400": (partial(peer, http(400)), Refused(ErrorClass.UNCLASSIFIED, "400")),
    "404": (partial(peer, http(404, b"<html>")), Refused(ErrorClass.UNCLASSIFIED, "404")),
    "422": (partial(peer, http(422, b"{}")), Refused(ErrorClass.UNCLASSIFIED, "422")),
    "408": (partial(peer, http(408)), Unknown(Reason.CARRIER_FAULT, "408")),
    "409": (partial(peer, http(409)), Unknown(Reason.CARRIER_FAULT, "409")),
    "425": (partial(peer, http(425)), Unknown(Reason.CARRIER_FAULT, "425")),
    "500": (partial(peer, http(500)), Unknown(Reason.CARRIER_FAULT, "500")),
    "500, an acceptance in it": (
        partial(peer, http(500, b'{"sid": "SM1", "status": "queued"}')),
        Unknown(Reason.CARRIER_FAULT, "500"),
    ),
    "503": (partial(peer, http(503)), Unknown(Reason.CARRIER_FAULT, "503")),
}


@pytest.fixture(params=sorted(OVER_HTTP))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(name: str, url: str, timeout: httpx.Timeout = PATIENT, clock: Callable[[], float] = boottime) -> Opened:
    return closing(OVER_HTTP[name](ROUTES[name](url), send_timeout=timeout, ask_timeout=timeout, clock=clock))


def timeout_for(way: str) -> httpx.Timeout:
    return IMPATIENT if "hangs" in way else PATIENT


def answering(name: str, response: httpx.Response, timeout: httpx.Timeout = PATIENT) -> Opened:
    transport = httpx.MockTransport(lambda _: response)
    return closing(OVER_HTTP[name](ROUTES[name]("http://carrier.test"), transport=transport, send_timeout=timeout))


@pytest.mark.parametrize("way", WAYS)
def test_a_send_comes_to_what_is_certain_and_goes_out_once(name: str, way: str) -> None:
    """Whatever fails after the first byte may have been taken: never a second request, never "failed"."""
    behaves, expected = WAYS[way]

    with behaves() as carrier, opened(name, carrier.url, timeout_for(way)) as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert result == expected
    assert len(carrier.requests) == 1


def test_what_the_carrier_took_is_submitted(name: str) -> None:
    answer, expected = ACCEPTED[name]

    with peer(answer) as carrier, opened(name, carrier.url) as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert result == expected
    assert len(carrier.requests) == 1


def test_a_refused_connection_is_not_handed_off(name: str) -> None:
    with opened(name, closed_port()) as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert result == NotHandedOff("connect_failed")


def test_a_name_that_does_not_resolve_is_not_handed_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_such_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_such_name)

    with opened(name, "http://carrier.test") as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert result == NotHandedOff("connect_failed")


def test_a_failed_tls_handshake_is_not_handed_off(name: str) -> None:
    with peer(b"no TLS here\r\n", reads=False) as carrier, opened(name, carrier.url.replace("http:", "https:")) as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert result == NotHandedOff("connect_failed")


def test_a_connection_closed_under_the_write_is_unknown(name: str) -> None:
    """The octets may have been in the carrier's hands when it closed."""
    with peer(None, reads=False) as carrier, opened(name, carrier.url) as adapter:
        result = adapter.send(submission(), deadline=FAR_AWAY)

    assert isinstance(result, Unknown)
    assert carrier.connections == 1


def test_nothing_is_even_connected_after_the_deadline(name: str) -> None:
    with peer(ACCEPTED[name][0]) as carrier, opened(name, carrier.url, clock=lambda: 100.0) as adapter:
        result = adapter.send(submission(), deadline=100.0)

    assert result == NotHandedOff("deadline_passed")
    assert carrier.connections == 0


def test_nothing_is_written_when_the_deadline_passes_during_the_connect(name: str) -> None:
    """A name server that took ten seconds, or a machine that slept: the last look is at the write."""
    clock = iter([99.0, 101.0]).__next__

    with peer(ACCEPTED[name][0]) as carrier, opened(name, carrier.url, clock=clock) as adapter:
        result = adapter.send(submission(), deadline=100.0)

    assert result == NotHandedOff("deadline_passed")
    assert carrier.connections == 1
    assert carrier.requests == []


def test_the_carrier_can_be_used_again_after_a_deadline_passed(name: str) -> None:
    clock = iter([99.0, 101.0, 102.0, 103.0]).__next__
    answer, expected = ACCEPTED[name]

    with peer(answer) as carrier, opened(name, carrier.url, clock=clock) as adapter:
        adapter.send(submission(), deadline=100.0)
        result = adapter.send(submission(), deadline=110.0)

    assert result == expected
    assert len(carrier.requests) == 1


def test_many_threads_share_one_carrier(name: str) -> None:
    answer, expected = ACCEPTED[name]

    with peer(answer) as carrier, opened(name, carrier.url) as adapter, ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: adapter.send(submission(), deadline=FAR_AWAY), range(40)))

    assert results == [expected] * 40
    assert len(carrier.requests) == 40


def test_an_error_of_unknown_kind_is_unknown_even_before_the_write(name: str) -> None:
    def fails(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    carrier = OVER_HTTP[name](ROUTES[name]("http://carrier.test"), transport=httpx.MockTransport(fails))

    with closing(carrier) as adapter:
        assert adapter.send(submission(), deadline=FAR_AWAY) == Unknown(Reason.TIMED_OUT, "ReadError")


def test_an_answer_longer_than_any_is_unreadable(name: str) -> None:
    with answering(name, httpx.Response(201, content=b" " * (MAX_ANSWER_OCTETS + 1))) as adapter:
        assert adapter.send(submission(), deadline=FAR_AWAY) == Unknown(Reason.UNREADABLE_ANSWER, "DecodingError")


def test_an_answer_that_drips_past_the_whole_time_is_given_up(name: str) -> None:
    with answering(name, httpx.Response(201, content=b"drop"), timeout=httpx.Timeout(0.0)) as adapter:
        assert adapter.send(submission(), deadline=FAR_AWAY) == Unknown(Reason.TIMED_OUT, "ReadTimeout")


def test_half_a_surrogate_pair_is_refused_before_it_is_sent(name: str) -> None:
    """A JSON escape can bring one in; no octets stand for it."""
    with peer(ACCEPTED[name][0]) as carrier, opened(name, carrier.url) as adapter:
        result = adapter.send(submission("hello \ud83d"), deadline=FAR_AWAY)

    assert result == Refused(ErrorClass.PERMANENT_CONTENT, "not_unicode")
    assert carrier.connections == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_poll_that_brings_no_answer_is_only_unanswered(name: str, way: str) -> None:
    behaves, _ = WAYS[way]

    with behaves() as carrier, opened(name, carrier.url, timeout_for(way)) as adapter:
        results = [adapter.poll("SM1"), adapter.look_up("+447700900123"), adapter.cancel("SM1")]

    assert [type(result) for result in results] == [Unanswered] * 3


def test_a_question_to_a_closed_port_is_unanswered(name: str) -> None:
    with opened(name, closed_port()) as adapter:
        assert isinstance(adapter.poll("SM1"), Unanswered)


DATE: Final = "Sun, 01 Mar 2026 12:00:00 GMT"

WAITS: Final[dict[str, tuple[dict[str, str], timedelta | None]]] = {
    "seconds": ({"Retry-After": "30"}, timedelta(seconds=30)),
    "a date, by the carrier's clock": ({"Retry-After": "Sun, 01 Mar 2026 12:01:30 GMT", "Date": DATE}, timedelta(seconds=90)),
    "a date without a zone": ({"Retry-After": "Sun, 01 Mar 2026 12:00:05 -0000", "Date": DATE}, timedelta(seconds=5)),
    "a date in the past": ({"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT", "Date": DATE}, timedelta(0)),
    "a date without the carrier's clock": ({"Retry-After": "Sun, 01 Mar 2026 12:01:30 GMT"}, None),
    "a century": ({"Retry-After": "9" * 400}, timedelta(days=1)),
    "negative": ({"Retry-After": "-5", "Date": DATE}, None),
    "digits of another script": ({"Retry-After": "\u0663"}, None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize("case", WAITS)
def test_retry_after_is_read_as_a_duration(case: str) -> None:
    headers, expected = WAITS[case]

    assert retry_after(httpx.Response(429, headers=httpx.Headers(headers, encoding="utf-8"))) == expected


def test_a_route_has_one_carrier_per_process(name: str) -> None:
    route = ROUTES[name]("http://carrier.test")

    assert open_carrier(route) is open_carrier(route)
    assert open_carrier(route) is not open_carrier(ROUTES[name]("http://carrier.test"))


@pytest.mark.parametrize("url", ["ftp://carrier.test", "carrier.test", "http://", "http://a:b"])
def test_a_route_without_a_usable_url_does_not_open(name: str, url: str) -> None:
    route = ROUTES[name]("http://carrier.test")
    wrong = RouteSettings(route.id, name, route.sender, route.receipt_url, {**route.settings, "base_url": url}, route.credentials)

    with pytest.raises(RouteMisconfigured):
        open_carrier(wrong)


def test_a_route_without_credentials_does_not_open(name: str) -> None:
    route = ROUTES[name]("http://carrier.test")
    wrong = RouteSettings(route.id, name, route.sender, route.receipt_url, route.settings)

    with pytest.raises(RouteMisconfigured):
        open_carrier(wrong)


def test_a_route_to_nobody_does_not_open() -> None:
    route = twilio_route()
    wrong = RouteSettings(route.id, "pigeon", route.sender, route.receipt_url)

    with pytest.raises(RouteMisconfigured):
        open_carrier(wrong)
