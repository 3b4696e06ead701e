"""Twilio's own package as the judge of our dialect."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from twilio.base.exceptions import TwilioRestException
from twilio.http.http_client import TwilioHttpClient
from twilio.request_validator import RequestValidator, get_signature_algorithm
from twilio.rest import Client

from simulator.server import Simulator
from tests.simulator.inbox import ACCOUNT, ANNA, BEN, SENDER, Heard, Inbox, send, use_rule, wait_until

QUEUED_FOR_LONG = {"path": [{"status": "sent", "after_ms": 60_000}]}


@pytest.fixture
def twilio(simulator: Simulator) -> Iterator[Client]:
    """Yield Twilio's client, pointed at the simulator; it never closes its connections itself."""
    transport = TwilioHttpClient(timeout=5)
    official = Client(ACCOUNT.sid, ACCOUNT.auth_token, http_client=transport)
    official.api.base_url = simulator.url
    yield official
    transport.session.close()


def test_it_sends_and_polls(twilio: Client) -> None:
    sent = twilio.messages.create(to=ANNA, from_=SENDER, body="Grüße, Seat 12 [A] is yours", validity_period=600)

    assert (sent.status, sent.to, sent.from_, sent.num_segments) == ("queued", ANNA, SENDER, "1")
    assert isinstance(sent.date_created, datetime)
    assert (sent.date_sent, sent.error_code, sent.price) == (None, None, None)
    wait_until(lambda: twilio.messages(sent.sid).fetch().status == "delivered")
    assert isinstance(twilio.messages(sent.sid).fetch().date_sent, datetime)


def test_it_lists_newest_first_and_by_number(twilio: Client) -> None:
    sids = [twilio.messages.create(to=to, from_=SENDER, body="hello").sid for to in (ANNA, BEN, ANNA)]

    assert [each.sid for each in twilio.messages.list()] == sids[::-1]
    assert [each.sid for each in twilio.messages.list(to=ANNA, from_=SENDER)] == [sids[2], sids[0]]
    assert twilio.messages.list(from_=BEN) == []


def test_it_reads_page_after_page(twilio: Client) -> None:
    sids = [twilio.messages.create(to=ANNA, from_=SENDER, body="hello").sid for _ in range(5)]

    assert [each.sid for each in twilio.messages.list(to=ANNA, page_size=2)] == sids[::-1]
    assert [each.sid for each in twilio.messages.list(to=ANNA, page_size=2, limit=3)] == sids[:1:-1]


def test_a_date_filter_hides_what_has_not_left(twilio: Client, client: httpx.Client) -> None:
    use_rule(client, QUEUED_FOR_LONG, to=BEN)
    left = twilio.messages.create(to=ANNA, from_=SENDER, body="hello")
    twilio.messages.create(to=BEN, from_=SENDER, body="hello")
    wait_until(lambda: twilio.messages(left.sid).fetch().status == "delivered")
    today, tomorrow = left.date_created, left.date_created + timedelta(days=1)

    assert [each.sid for each in twilio.messages.list(date_sent_after=today.astimezone(UTC))] == [left.sid]
    assert twilio.messages.list(date_sent_after=tomorrow) == []
    assert [each.sid for each in twilio.messages.list(date_sent_before=tomorrow)] == [left.sid]


def test_it_cancels_what_is_still_queued(twilio: Client, client: httpx.Client) -> None:
    use_rule(client, QUEUED_FOR_LONG)
    sid = twilio.messages.create(to=ANNA, from_=SENDER, body="hello").sid

    assert twilio.messages(sid).update(status="canceled").status == "canceled"
    assert twilio.messages(sid).fetch().status == "canceled"


def test_it_cannot_cancel_what_has_left(twilio: Client) -> None:
    sid = twilio.messages.create(to=ANNA, from_=SENDER, body="hello").sid
    wait_until(lambda: twilio.messages(sid).fetch().status == "delivered")

    with pytest.raises(TwilioRestException) as refused:
        twilio.messages(sid).update(status="canceled")

    assert refused.value.code == 30409


@pytest.mark.parametrize(("code", "status"), [(21211, 400), (21610, 400), (20003, 401), (20429, 429), (20503, 503)])
def test_it_raises_the_code_of_a_refusal(twilio: Client, client: httpx.Client, code: int, status: int) -> None:
    use_rule(client, {"code": code})

    with pytest.raises(TwilioRestException) as refused:
        twilio.messages.create(to=ANNA, from_=SENDER, body="hello")

    assert (refused.value.code, refused.value.status) == (code, status)


def test_it_is_told_that_a_message_does_not_exist(twilio: Client) -> None:
    with pytest.raises(TwilioRestException) as refused:
        twilio.messages("SM" + "0" * 32).fetch()

    assert (refused.value.code, refused.value.status) == (20404, 404)


def is_valid(heard: Heard, url: str, *, secret: str) -> bool:
    algorithm = get_signature_algorithm(heard.headers.get("x-twilio-webhooks-signature-settings"))
    verdict: bool = RequestValidator(secret).validate(url, dict(heard.form), heard.headers["x-twilio-signature"], algorithm)
    return verdict


@pytest.mark.parametrize(
    ("signature", "secret", "verdict"),
    [
        ("right", ACCOUNT.auth_token, True),
        ("right", "another", False),
        ("sha256", ACCOUNT.shared_key_secret, True),
        ("sha256", ACCOUNT.auth_token, False),
        ("wrong", ACCOUNT.auth_token, False),
    ],
)
def test_its_validator_judges_our_signatures(
    client: httpx.Client, inbox: Inbox, signature: str, secret: str, *, verdict: bool
) -> None:
    use_rule(client, {"receipts": [{"status": "failed", "error_code": 30005, "signature": signature}]})

    send(client, StatusCallback=f"{inbox.url}#rc=2&rp=all")

    [heard] = inbox.wait_for(1)
    assert heard.path == "/receipts?key=att-1"
    assert is_valid(heard, inbox.url, secret=secret) is verdict


def test_a_receipt_may_come_unsigned(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": [{"status": "sent", "signature": "none"}]})

    send(client, StatusCallback=inbox.url)

    assert "x-twilio-signature" not in inbox.wait_for(1)[0].headers
