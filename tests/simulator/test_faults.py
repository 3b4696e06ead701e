"""Each fault, over a real socket: what the client sees, and what the book says is true."""

from __future__ import annotations

import socket
from base64 import b64encode

import httpx
import pytest

from tests.simulator.inbox import (
    ACCOUNT,
    ANNA,
    BEN,
    MESSAGES,
    Inbox,
    accepted,
    poll,
    posts,
    send,
    use_rule,
    wait_until,
)


def test_a_message_is_accepted_and_its_receipts_follow(client: httpx.Client, inbox: Inbox) -> None:
    answer = send(client, StatusCallback=inbox.url)

    assert (answer.status_code, answer.json()["status"]) == (201, "queued")
    assert [heard.status for heard in inbox.wait_for(2)] == ["sent", "delivered"]
    [row] = accepted(client)
    assert (row["sid"], row["key"], row["body"]) == (answer.json()["sid"], "att-1", "Seat 12 is yours")


@pytest.mark.parametrize("sent", [b"", b"To=%2B12015550123&From=%2B15005550006&Body=Seat+12"])
def test_half_a_request_is_none(client: httpx.Client, sent: bytes) -> None:
    """Its caller died while it wrote: what came so far would read as another text, or as nobody's."""
    basic = b64encode(f"{ACCOUNT.sid}:{ACCOUNT.auth_token}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Content-Type": "application/x-www-form-urlencoded", "Content-Length": "200"}
    head = "\r\n".join([f"POST {MESSAGES} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""])

    with socket.create_connection((client.base_url.host, client.base_url.port or 0)) as connection:
        connection.sendall(head.encode() + sent)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(1)

    assert answer == b""
    assert (accepted(client), client.get("/_sim/requests").json()) == ([], [])


@pytest.mark.parametrize("was_accepted", [True, False])
@pytest.mark.parametrize(
    ("respond", "error"),
    [("drop", httpx.ReadError), ("close", httpx.RemoteProtocolError), ("hang", httpx.ReadTimeout)],
)
def test_the_connection_ends_without_an_answer(
    client: httpx.Client, respond: str, error: type[httpx.TransportError], *, was_accepted: bool
) -> None:
    """The client cannot tell the two apart; the book can."""
    use_rule(client, {"accept": was_accepted, "respond": respond})
    client.timeout = httpx.Timeout(0.3)

    with pytest.raises(error):
        send(client)

    assert len(accepted(client)) == was_accepted


def test_a_hanging_connection_is_closed_in_the_end(client: httpx.Client) -> None:
    use_rule(client, {"respond": "hang", "hang_ms": 20})

    with pytest.raises(httpx.RemoteProtocolError):
        send(client)


def test_an_answer_breaks_off(client: httpx.Client) -> None:
    use_rule(client, {"respond": "truncate"})

    with pytest.raises(httpx.RemoteProtocolError):
        send(client)

    assert len(accepted(client)) == 1


@pytest.mark.parametrize("was_accepted", [True, False])
def test_a_server_error_says_nothing_about_acceptance(client: httpx.Client, *, was_accepted: bool) -> None:
    use_rule(client, {"accept": was_accepted, "status": 500})

    assert send(client).status_code == 500
    assert len(accepted(client)) == was_accepted


@pytest.mark.parametrize(
    ("then", "status", "code"),
    [
        ({"code": 21211}, 400, 21211),
        ({"code": 21610}, 400, 21610),
        ({"status": 401}, 401, 20003),
        ({"status": 429, "retry_after": 3}, 429, 20429),
        ({"status": 503}, 503, 20503),
        ({"code": 20500}, 500, 20500),
        ({"status": 409, "code": 30409, "message": "Not now"}, 409, 30409),
    ],
)
def test_a_refusal_has_a_status_and_a_code(client: httpx.Client, then: object, status: int, code: int) -> None:
    use_rule(client, then)

    answer = send(client)

    assert (answer.status_code, answer.json()["code"], answer.json()["status"]) == (status, code, status)
    assert accepted(client) == []


def test_a_throttled_client_is_told_when_to_come_back(client: httpx.Client) -> None:
    use_rule(client, {"status": 429, "retry_after": 3})

    assert send(client).headers["Retry-After"] == "3"


@pytest.mark.parametrize(
    ("then", "body"),
    [
        ({"respond": "garbage"}, b"<html><body>It works!</body></html>"),
        ({"respond": "empty"}, b""),
        ({"body": '{"sid": null}'}, b'{"sid": null}'),
        ({"status": 202, "body": "Sent."}, b"Sent."),
    ],
)
def test_a_good_status_comes_with_an_unreadable_body(client: httpx.Client, then: object, body: bytes) -> None:
    use_rule(client, then)

    answer = send(client)

    assert (answer.is_success, answer.content) == (True, body)
    assert len(accepted(client)) == 1


def test_a_message_is_promised_and_forgotten(client: httpx.Client) -> None:
    """The answer names an id that no book holds."""
    use_rule(client, {"accept": False, "status": 201})

    sid = send(client).json()["sid"]

    assert client.get(f"{ACCOUNT.messages_path}/{sid}.json").status_code == 404


def test_an_answer_takes_its_time(client: httpx.Client) -> None:
    use_rule(client, {"latency_ms": 100})

    assert send(client).elapsed.total_seconds() >= 0.1


def test_a_receipt_overtakes_the_answer(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "early"})

    send(client, StatusCallback=inbox.url)

    assert [heard.status for heard in inbox.heard] == ["sent", "delivered"]


def test_a_duplicate_bears_the_token_of_the_first(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "duplicate"})

    send(client, StatusCallback=inbox.url)

    heard = inbox.wait_for(4)
    assert [each.status for each in heard] == ["sent", "sent", "delivered", "delivered"]
    assert len({each.idempotency_token for each in heard}) == 2


def test_receipts_come_in_the_wrong_order(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "reordered"})

    send(client, StatusCallback=inbox.url)

    assert [heard.status for heard in inbox.wait_for(2)] == ["delivered", "sent"]


def test_receipts_are_lost_and_a_poll_knows_better(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "lost"})

    sid = send(client, StatusCallback=inbox.url).json()["sid"]

    wait_until(lambda: poll(client, sid)["status"] == "delivered")
    assert client.get("/_sim/health").json()["receipts_pending"] == 0
    assert inbox.heard == []


def test_receipts_are_late_and_a_poll_is_not(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "normal", "late_ms": 400})

    sid = send(client, StatusCallback=inbox.url).json()["sid"]
    wait_until(lambda: poll(client, sid)["status"] == "delivered")

    assert inbox.heard == []
    assert len(inbox.wait_for(2)) == 2


def test_receipts_contradict_each_other(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "contradictory"})

    send(client, StatusCallback=inbox.url)

    assert [heard.status for heard in inbox.wait_for(3)] == ["sent", "failed", "delivered"]


def test_a_failed_receipt_has_an_error_code_and_polls_agree(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": [{"status": "undelivered", "error_code": 30005}]})

    sid = send(client, StatusCallback=inbox.url).json()["sid"]

    [heard] = inbox.wait_for(1)
    assert (heard.status, heard.form["ErrorCode"]) == ("undelivered", "30005")
    assert (poll(client, sid)["status"], poll(client, sid)["error_code"]) == ("undelivered", 30005)


def test_a_receipt_uses_an_unknown_word(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "unknown_word"})

    send(client, StatusCallback=inbox.url)

    assert [heard.status for heard in inbox.wait_for(2)] == ["sent", "teleported"]


def test_a_receipt_comes_without_its_id(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "without_sid"})

    send(client, StatusCallback=inbox.url)

    assert "MessageSid" not in inbox.wait_for(2)[0].form


def test_a_receipt_comes_without_its_token(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": [{"status": "sent", "token": False}]})

    send(client, StatusCallback=inbox.url)

    assert inbox.wait_for(1)[0].idempotency_token is None


def test_a_poll_says_otherwise_than_the_receipts(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": "normal", "path": [{"status": "failed", "after_ms": 0, "error_code": 30008}]})

    sid = send(client, StatusCallback=inbox.url).json()["sid"]

    assert poll(client, sid)["status"] == "failed"
    assert [heard.status for heard in inbox.wait_for(2)] == ["sent", "delivered"]


def test_a_poll_does_not_find_the_message(client: httpx.Client) -> None:
    use_rule(client, {"polled": False})

    sid = send(client).json()["sid"]

    assert client.get(f"{ACCOUNT.messages_path}/{sid}.json").status_code == 404


def test_a_list_does_not_show_the_message(client: httpx.Client) -> None:
    use_rule(client, {"listed": False})

    send(client)

    assert client.get(MESSAGES, params={"To": ANNA}).json()["messages"] == []


def test_a_refused_message_is_found_later(client: httpx.Client) -> None:
    """The answer says that it was not taken; minutes later it is in the list."""
    use_rule(client, {"accept": True, "status": 500, "listed_after_ms": 100})
    send(client)

    first = client.get(MESSAGES, params={"To": ANNA}).json()["messages"]

    assert first == []
    wait_until(lambda: len(client.get(MESSAGES, params={"To": ANNA}).json()["messages"]) == 1)


@pytest.mark.parametrize(
    ("on", "statuses"),
    [("poll", [503, 200, 200]), ("list", [200, 503, 200]), ("cancel", [200, 200, 503])],
)
def test_other_calls_than_sends_fail_too(client: httpx.Client, on: str, statuses: list[int]) -> None:
    message = f"{ACCOUNT.messages_path}/{use_slow_path(client, on=on)}.json"

    answers = [client.get(message), client.get(MESSAGES), client.post(message, data={"Status": "canceled"})]

    assert [answer.status_code for answer in answers] == statuses


def use_slow_path(client: httpx.Client, *, on: str) -> str:
    """Send a message that stays queued, with calls of one kind failing; give its id."""
    rules = [
        {"match": {"on": on}, "then": {"status": 503}},
        {"then": {"path": [{"status": "sent", "after_ms": 60_000}]}},
    ]
    client.put("/_sim/rules", json={"rules": rules}).raise_for_status()
    return str(send(client).json()["sid"])


def test_a_cancel_is_answered_and_ignored(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"cancels": "ignored"})
    message = f"{ACCOUNT.messages_path}/{send(client, StatusCallback=inbox.url).json()['sid']}.json"

    assert client.post(message, data={"Status": "canceled"}).json()["status"] == "canceled"
    assert [heard.status for heard in inbox.wait_for(2)] == ["sent", "delivered"]


def test_an_obeyed_cancel_takes_back_the_receipts(client: httpx.Client, inbox: Inbox) -> None:
    use_rule(client, {"receipts": [{"status": "sent", "after_ms": 60_000}]})
    message = f"{ACCOUNT.messages_path}/{send(client, StatusCallback=inbox.url).json()['sid']}.json"

    client.post(message, data={"Status": "canceled"})

    assert [heard.status for heard in inbox.wait_for(1)] == ["canceled"]
    wait_until(lambda: client.get("/_sim/health").json()["receipts_pending"] == 0)


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({"To": "", "From": "+15005550006", "Body": "hello"}, 21604),
        ({"To": ANNA, "Body": "hello"}, 21603),
        ({"To": ANNA, "From": "+15005550006"}, 21602),
        ({"To": "12015550123", "From": "+15005550006", "Body": "hello"}, 21211),
        ({"To": ANNA, "From": "+15005550006", "Body": "a" * 1601}, 21617),
        ({"To": ANNA, "From": "+15005550006", "Body": "hello", "StatusCallback": "receipts"}, 21609),
    ],
)
def test_a_faulty_request_is_refused_whatever_the_rules_say(client: httpx.Client, form: dict[str, str], code: int) -> None:
    assert client.post(MESSAGES, data=form).json()["code"] == code
    assert accepted(client) == []


def test_a_stranger_is_refused_and_written_down(client: httpx.Client) -> None:
    answer = client.post(MESSAGES, data={"To": ANNA}, auth=("AC1", "guess"))

    assert (answer.status_code, answer.json()["code"]) == (401, 20003)
    [request] = client.get("/_sim/requests", params={"to": ANNA}).json()
    assert (request["status"], request["accepted"]) == (401, False)


def test_every_request_is_written_down_with_its_answer(client: httpx.Client) -> None:
    use_rule(client, {"code": 21211}, nth=1)

    send(client, ANNA)
    send(client, ANNA)
    send(client, BEN)

    requests = client.get("/_sim/requests", params={"to": ANNA}).json()
    assert [(each["status"], each["accepted"], each["rule"]) for each in requests] == [(400, False, 0), (201, True, None)]


def test_a_rule_about_one_number_leaves_others_alone(client: httpx.Client) -> None:
    use_rule(client, {"status": 503}, to=ANNA)

    assert (send(client, ANNA).status_code, send(client, BEN).status_code) == (503, 201)


def test_no_receipt_is_posted_without_a_url(client: httpx.Client) -> None:
    send(client)

    assert client.get("/_sim/health").json()["receipts_pending"] == 0
    assert posts(client) == []
