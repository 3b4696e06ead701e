"""How receipts are posted: to loopback only, and again when the URL's fragment says so."""

from __future__ import annotations

import httpx
import pytest

from simulator.poster import ALL_REASONS, Overrides, find_loopback, overrides_in
from tests.simulator.inbox import ANNA, Inbox, posts, send, use_rule, wait_until

ONE_RECEIPT = {"receipts": [{"status": "delivered", "after_ms": 0}]}


@pytest.mark.parametrize(
    ("url", "overrides"),
    [
        ("http://127.0.0.1/r", Overrides()),
        ("http://127.0.0.1/r?key=a#rc=5&rp=all", Overrides(5, ALL_REASONS)),
        ("http://127.0.0.1/r#rc=9", Overrides(5)),
        ("http://127.0.0.1/r#rc=0&rp=4xx,rt", Overrides(0, frozenset({"4xx", "rt"}))),
        ("http://127.0.0.1/r#ct=2000&rt=5000", Overrides(connect_within=2.0, read_within=5.0)),
        ("http://127.0.0.1/r#rc=often", Overrides()),
    ],
)
def test_the_fragment_steers_repetition(url: str, overrides: Overrides) -> None:
    assert overrides_in(url) == overrides


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "127.0.0.1"), ("::1", "::1"), ("192.0.2.1", None), ("", None)],
)
def test_only_this_machine_is_called(host: str, address: str | None) -> None:
    assert find_loopback(host) == address


def test_a_receipt_for_elsewhere_is_written_down_and_not_posted(client: httpx.Client) -> None:
    use_rule(client, ONE_RECEIPT)

    send(client, StatusCallback="http://192.0.2.1/receipts#rc=5&rp=all")

    wait_until(lambda: len(posts(client)) == 1)
    assert [(post["outcome"], post["final"]) for post in posts(client)] == [("refused_host", True)]


def test_a_name_for_this_machine_is_called_by_that_name(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, ONE_RECEIPT)

    send(client, StatusCallback=f"http://localhost:{inbox.port}/receipts")

    assert inbox.wait_for(1)[0].headers["host"] == f"localhost:{inbox.port}"


def test_an_error_answer_loses_the_receipt_by_default(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, ONE_RECEIPT)
    inbox.answers = [500]

    send(client, StatusCallback=inbox.url)

    wait_until(lambda: len(posts(client)) == 1)
    assert [(post["http_status"], post["final"]) for post in posts(client)] == [(500, True)]


def test_an_error_answer_brings_the_same_call_again_where_asked_for(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, ONE_RECEIPT)
    inbox.answers = [500, 404]

    send(client, StatusCallback=f"{inbox.url}#rc=5&rp=all")

    heard = inbox.wait_for(3)
    assert len({(each.idempotency_token, each.headers["x-twilio-signature"]) for each in heard}) == 1
    wait_until(lambda: len(posts(client)) == 3)
    assert [post["final"] for post in posts(client)] == [False, False, True]


def test_repetition_ends(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, ONE_RECEIPT)
    inbox.answers = [503] * 9

    send(client, StatusCallback=f"{inbox.url}#rc=2&rp=all")

    wait_until(lambda: client.get("/_sim/health").json()["receipts_pending"] == 0)
    assert [post["turn"] for post in posts(client)] == [1, 2, 3]


def test_a_closed_door_is_tried_again(client: httpx.Client) -> None:
    use_rule(client, ONE_RECEIPT)
    with Inbox() as closed_later:
        port = closed_later.port
    send(client, StatusCallback=f"http://127.0.0.1:{port}/receipts#rc=5")
    wait_until(lambda: len(posts(client)) >= 1)

    with Inbox(port) as opened_late:
        opened_late.wait_for(1)

    wait_until(lambda: posts(client)[-1]["outcome"] == "answered")
    assert posts(client)[0]["outcome"] == "connect_failed"
    assert posts(client, ANNA)[-1]["http_status"] == 204
