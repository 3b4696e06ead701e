"""The simulator's own API: read the book, change the rules, post by hand."""

from __future__ import annotations

from hashlib import sha256

import httpx
import pytest

from simulator.dialect import sign
from tests.simulator.inbox import ACCOUNT, ANNA, BEN, Inbox, accepted, poll, posts, send, use_rule

NO_RECEIPTS: dict[str, object] = {"receipts": []}


def test_the_book_is_searched_by_number_and_by_key(client: httpx.Client, inbox: Inbox) -> None:
    send(client, ANNA, StatusCallback=inbox.url)
    send(client, BEN)

    by_key = client.get("/_sim/accepted", params={"key": "att-1"}).json()

    assert [row["to"] for row in by_key] == [ANNA]
    assert [row["to"] for row in client.get("/_sim/accepted?to=+12015550123").json()] == [ANNA]
    assert len(client.get("/_sim/accepted").json()) == 2
    assert by_key[0]["body_sha256"] == sha256(b"Seat 12 is yours").hexdigest()


def test_an_unknown_filter_is_a_mistake(client: httpx.Client) -> None:
    answer = client.get("/_sim/accepted", params={"number": ANNA})

    assert (answer.status_code, answer.json()) == (400, {"error": "query.number: is not a known filter"})


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("{", "body: JSON is wanted"),
        ('{"rules": {}}', "body.rules: a list is wanted"),
        ('{"rule": []}', "body.rules: is missing"),
        ('{"rules": [], "seed": -1}', "body.seed: a whole number from 0"),
        ('{"rules": [{"then": {"status": 500}}, {"then": {"status": 5}}]}', "rules[1].then.status: a whole number"),
    ],
)
def test_mistaken_rules_change_nothing(client: httpx.Client, body: str, complaint: str) -> None:
    use_rule(client, {"status": 503})
    before = client.get("/_sim/rules").json()

    answer = client.put("/_sim/rules", content=body)

    assert answer.status_code == 400
    assert answer.json()["error"].startswith(complaint)
    assert client.get("/_sim/rules").json() == before
    assert send(client).status_code == 503


def test_rules_are_given_back_as_they_came(client: httpx.Client) -> None:
    rules = [{"match": {"to": "+1201*"}, "times": 2, "then": {"status": 503}}]

    client.put("/_sim/rules", json={"rules": rules, "seed": 11})

    assert client.get("/_sim/rules").json() == {"rules": rules, "seed": 11}


def test_a_reset_forgets_everything(client: httpx.Client) -> None:
    use_rule(client, {"status": 503}, nth=2)
    first = send(client).json()["sid"]

    client.post("/_sim/reset")

    assert (accepted(client), client.get("/_sim/requests").json()) == ([], [])
    assert client.get("/_sim/rules").json() == {"rules": [], "seed": 7}
    assert send(client).json()["sid"] == first


def test_a_reset_may_bring_other_ids(client: httpx.Client) -> None:
    first = send(client).json()["sid"]

    client.post("/_sim/reset", json={"seed": 8})

    assert send(client).json()["sid"] != first


def test_a_receipt_is_posted_by_hand(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, NO_RECEIPTS)
    sid = send(client, StatusCallback=inbox.url).json()["sid"]

    post = client.post("/_sim/receipts", json={"to": ANNA, "status": "undelivered", "error_code": 30007}).json()

    [heard] = inbox.heard
    assert (heard.form["MessageSid"], heard.status, heard.form["ErrorCode"]) == (sid, "undelivered", "30007")
    assert (post["outcome"], post["http_status"]) == ("answered", 204)
    assert [each["receipt_id"] for each in posts(client)] == [post["receipt_id"]]
    assert poll(client, sid)["error_code"] is None


def test_a_receipt_by_hand_may_be_wrong(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, NO_RECEIPTS)
    sid = send(client, StatusCallback=inbox.url).json()["sid"]
    wrong = {"sid": sid, "status": "sent", "signature": "none", "without": ["MessageSid"], "token": False}

    client.post("/_sim/receipts", json=wrong).raise_for_status()

    [heard] = inbox.heard
    assert {"x-twilio-signature", "i-twilio-idempotency-token"} & heard.headers.keys() == set()
    assert "MessageSid" not in heard.form


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ({"status": "sent"}, "body: one of sid and to is wanted"),
        ({"to": BEN, "status": "sent"}, "body: there is no such message"),
        ({"to": ANNA, "status": "sent"}, "body: the message came without a StatusCallback"),
    ],
)
def test_a_receipt_by_hand_needs_a_message(client: httpx.Client, body: object, complaint: str) -> None:
    send(client, ANNA)

    answer = client.post("/_sim/receipts", json=body)

    assert (answer.status_code, answer.json()["error"]) == (400, complaint)


def test_health_counts(client: httpx.Client) -> None:
    use_rule(client, {"code": 21211}, to=BEN)
    send(client, ANNA)
    send(client, BEN)

    health = client.get("/_sim/health").json()

    assert (health["status"], health["accepted"], health["requests"]) == ("ok", 1, 2)
    assert (health["account_sid"], health["seed"]) == (ACCOUNT.sid, 7)


def test_what_does_not_exist_is_not_found(client: httpx.Client) -> None:
    assert client.get("/_sim/secrets").status_code == 404
    assert client.get("/2010-04-01/Accounts/AC1/Messages.json").status_code == 404
    assert client.delete(f"{ACCOUNT.messages_path}/SM1.json").status_code == 405


def test_a_text_is_handed_over_where_the_answers_to_a_number_go(client: httpx.Client, inbox: Inbox) -> None:
    url = f"http://127.0.0.1:{inbox.port}/v1/receipts/r-1"
    use_rule(client, NO_RECEIPTS)
    send(client, ANNA, StatusCallback=url + "?key=att-1#rc=1")

    answer = client.post("/_sim/inbound", json={"from": ANNA, "text": "STOP", "opt_out_type": "STOP"}).json()

    (heard,) = inbox.wait_for(1)
    signed = sign(ACCOUNT.auth_token, url.replace("/v1/receipts/", "/v1/inbound/"), heard.form)
    assert (answer["outcome"], answer["http_status"]) == ("answered", 204)
    assert (heard.form["From"], heard.form["Body"], heard.form["OptOutType"]) == (ANNA, "STOP", "STOP")
    assert heard.headers["x-twilio-signature"] == signed


@pytest.mark.parametrize(
    "body", [{"text": "STOP"}, {"from": ANNA}, {"from": ANNA, "text": "STOP"}, {"from": BEN, "text": "x", "y": 1}]
)
def test_a_text_of_nobody_or_to_nowhere_is_a_mistake(client: httpx.Client, body: dict[str, object]) -> None:
    assert client.post("/_sim/inbound", json=body).status_code == 400
