"""The simulator without sockets, on a clock that the test moves."""

from __future__ import annotations

import httpx
import pytest

from simulator.dialect import ReceiptCall
from simulator.transport import NOON, SimulatorTransport
from tests.simulator.inbox import ACCOUNT, poll, send

RECEIPT_URL = "http://127.0.0.1:9/receipts?key=att-1#rc=5&rp=all"


def client_of(transport: SimulatorTransport) -> httpx.Client:
    return httpx.Client(base_url="http://simulator", auth=(ACCOUNT.sid, ACCOUNT.auth_token), transport=transport)


def test_receipts_wait_for_the_clock() -> None:
    transport = SimulatorTransport()
    send(client_of(transport), StatusCallback=RECEIPT_URL)

    assert transport.receipts == []
    assert [b"MessageStatus=sent" in call.body for call in transport.advance(0.06)] == [True]
    assert [b"MessageStatus=delivered" in call.body for call in transport.advance(0.06)] == [True]
    assert transport.receipts[0].url == "http://127.0.0.1:9/receipts?key=att-1"


def test_a_poll_follows_the_clock() -> None:
    transport = SimulatorTransport()
    client = client_of(transport)
    sid = send(client).json()["sid"]

    before = poll(client, sid)["status"]
    transport.advance(1)

    assert (before, poll(client, sid)["status"]) == ("queued", "delivered")
    assert transport.book.messages[sid].accepted_at == NOON


def test_an_early_receipt_comes_within_the_call() -> None:
    heard: list[ReceiptCall] = []
    transport = SimulatorTransport(on_receipt=heard.append)
    transport.use_rules([{"then": {"receipts": "early"}}])

    send(client_of(transport), StatusCallback=RECEIPT_URL)

    assert len(heard) == 2


@pytest.mark.parametrize(
    ("then", "error"),
    [
        ({"respond": "drop"}, httpx.ReadError),
        ({"respond": "close"}, httpx.RemoteProtocolError),
        ({"respond": "truncate"}, httpx.RemoteProtocolError),
        ({"respond": "hang"}, httpx.ReadTimeout),
        ({"latency_ms": 60_000}, httpx.ReadTimeout),
    ],
)
def test_the_network_fails_as_a_real_one_does(then: object, error: type[httpx.TransportError]) -> None:
    transport = SimulatorTransport()
    transport.use_rules([{"then": then}])

    with pytest.raises(error):
        send(client_of(transport))

    assert len(transport.book.messages) == 1


def test_a_cancelled_message_sends_no_receipt_but_that() -> None:
    transport = SimulatorTransport()
    client = client_of(transport)
    sid = send(client, StatusCallback=RECEIPT_URL).json()["sid"]

    client.post(f"{ACCOUNT.messages_path}/{sid}.json", data={"Status": "canceled"})

    assert [b"MessageStatus=canceled" in call.body for call in transport.advance(1)] == [True]


def test_a_stranger_is_refused() -> None:
    client = client_of(SimulatorTransport())
    client.auth = httpx.BasicAuth(ACCOUNT.sid, "guess")

    assert send(client).status_code == 401
