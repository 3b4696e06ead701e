"""The life of one text, and of those that do not go as planned: HTTP, the carrier's own book, history."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.awaiting import eventually
from tests.e2e.house import House, new_number

pytestmark = pytest.mark.processes


def soon(house: House, **delta: float) -> str:
    """Give an instant from now, by the database's clock, as the API takes it."""
    now: datetime = house.sql("SELECT clock_timestamp()")[0][0]
    return (now + timedelta(**delta)).astimezone(UTC).isoformat()


def test_an_accepted_event_becomes_one_text_and_its_history_says_so(house: House) -> None:
    number = new_number()
    answer = house.post(house.request(sms=number))

    items = house.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items] == ["queued", "handed_off", "delivered"]
    assert [item["n"] for item in items] == [1, 2, 3]
    assert len(house.accepted(number)) == 1
    assert house.call("GET", f"/v1/events/{answer['event_id']}").json()["intents"][0]["state"] == "delivered"


def test_trace_tells_the_whole_story_without_the_address(house: House) -> None:
    number = new_number()
    answer = house.post(house.request(sms=number))
    house.await_state(answer["event_id"], "delivered")

    told = house.daybook("trace", answer["event_id"])

    assert told.returncode == 0, told.stderr
    assert {"event", "decisions", "attempt", "heard", "history", "delivered"} <= set(re.findall(r"[a-z]+", told.stdout.lower()))
    assert number not in told.stdout


def test_an_event_of_the_inlet_goes_out_when_its_transaction_commits_and_not_when_it_rolls_back(house: House) -> None:
    kept, dropped = house.request(), house.request()
    insert = "INSERT INTO inlet (tenant, request) VALUES ('demo', %s)"
    with psycopg.connect(house.ready["database_url"].replace("+psycopg", "")) as booking:
        booking.execute(insert, [json.dumps(kept)])
        booking.commit()
        booking.execute(insert, [json.dumps(dropped)])
        booking.rollback()

    eventually(lambda: house.accepted(kept["recipient"]["sms"]))

    state = "SELECT status, request FROM inlet WHERE event_id = (SELECT id FROM event WHERE subject = %s)"
    assert house.sql(state, kept["subject"]) == [("accepted", None)]
    assert house.accepted(dropped["recipient"]["sms"]) == []


def test_a_batch_of_a_thousand_says_which_two_are_bad_and_sends_the_others(tenant: House) -> None:
    number = new_number()
    bodies = [tenant.request(sms=number) for _ in range(1000)]
    bodies[17]["recipient"]["sms"] = "+1201"
    bodies[905]["template"] = "no-such-template"

    results = tenant.call("POST", "/v1/events/batch", json={"events": bodies}).json()["results"]

    assert Counter(result["status"] for result in results) == {202: 998, 422: 2}
    assert [i for i, result in enumerate(results) if result["status"] == 422] == [17, 905]
    eventually(lambda: len(tenant.accepted(number)), until=lambda n: n == 998, seconds=90)


def test_a_cancel_before_the_handoff_stops_it_and_a_repeat_says_the_same(tenant: House) -> None:
    number = new_number()
    answer = tenant.post(tenant.request(sms=number, not_before=soon(tenant, hours=1)))
    path = f"/v1/events/{answer['event_id']}/cancel"

    first, again = tenant.call("POST", path), tenant.call("POST", path)

    assert (first.status_code, first.json()) == (200, again.json())
    # Awaited: a transaction of anybody's that is still open holds the feed back.
    items = tenant.await_state(answer["event_id"], "cancelled")
    assert [item["state"] for item in items] == ["queued", "deferred", "cancelled"]
    assert tenant.accepted(number) == []


def test_a_cancel_after_the_handoff_says_so_and_the_truth_goes_on(tenant: House) -> None:
    number = new_number()
    tenant.rule(number, receipts=[{"status": "sent", "after_ms": 50}, {"status": "delivered", "after_ms": 2500}])
    answer = tenant.post(tenant.request(sms=number))
    tenant.await_state(answer["event_id"], "handed_off")

    cancelled = tenant.call("POST", f"/v1/events/{answer['event_id']}/cancel").json()

    assert [(each["channel"], each["handed_off"]) for each in cancelled["intents"]] == [("sms", True)]
    tenant.await_state(answer["event_id"], "delivered")
    assert len(tenant.accepted(number)) == 1


def test_an_event_that_nobody_may_send_in_time_expires(tenant: House) -> None:
    number = new_number()
    pause = ("--tenant", "impatient", "--category", "transactional")
    assert tenant.daybook("pause", *pause, "--reason", "test").returncode == 0
    try:
        answer = tenant.post(tenant.request(sms=number, expires_at=soon(tenant, seconds=2)))
        items = tenant.await_state(answer["event_id"], "expired")
    finally:
        assert tenant.daybook("resume", *pause, "--reason", "test").returncode == 0

    assert [item["state"] for item in items] == ["queued", "expired"]
    assert tenant.accepted(number) == []


def test_a_deferred_event_leaves_when_its_time_has_come(tenant: House) -> None:
    number = new_number()
    answer = tenant.post(tenant.request(sms=number, not_before=soon(tenant, seconds=2)))
    assert answer["intents"][0]["reason"] == "not_before"

    items = tenant.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items] == ["queued", "deferred", "handed_off", "delivered"]


def test_a_refusal_that_the_policy_calls_passing_is_tried_again(tenant: House) -> None:
    number = new_number()
    tenant.rules({"match": {"to": number, "nth": 1}, "then": {"accept": False, "status": 400, "code": 30003}})
    answer = tenant.post(tenant.request(sms=number))

    items = tenant.await_state(answer["event_id"], "delivered")

    states = [(item["attempt"], item["state"]) for item in items]
    assert states == [(1, "queued"), (1, "failed"), (2, "deferred"), (2, "handed_off"), (2, "delivered")]
    assert len(tenant.accepted(number)) == 1


def doubtful(**more: Any) -> dict[str, Any]:
    """Say that the carrier takes it and the answer is lost."""
    return {"accept": True, "respond": "drop"} | more


def test_a_lost_answer_is_doubt_that_the_receipt_settles(tenant: House) -> None:
    number = new_number()
    receipts = [{"status": "sent", "after_ms": 900}, {"status": "delivered", "after_ms": 1000}]
    tenant.rule(number, **doubtful(receipts=receipts))
    answer = tenant.post(tenant.request(sms=number))

    items = tenant.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items][:2] == ["queued", "unknown"]
    assert len(tenant.accepted(number)) == 1


def test_a_word_nobody_knows_is_doubt_that_a_poll_settles(tenant: House) -> None:
    number = new_number()
    path = [{"status": "sent", "after_ms": 50}, {"status": "delivered", "after_ms": 1500}]
    tenant.rule(number, receipts=[{"status": "teleported", "after_ms": 50}], path=path)
    answer = tenant.post(tenant.request(sms=number))

    items = tenant.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items] == ["queued", "handed_off", "unknown", "delivered"]
    sources = tenant.sql("SELECT source FROM observation WHERE event_id = %s AND state = 'delivered'", answer["event_id"])
    assert sources == [("poll",)]


def test_a_lost_answer_without_receipts_is_found_by_a_look_up(tenant: House) -> None:
    number = new_number()
    tenant.rule(number, **doubtful(receipts="lost"))
    answer = tenant.post(tenant.request(sms=number))

    tenant.await_state(answer["event_id"], "delivered")

    sources = tenant.sql("SELECT source FROM observation WHERE event_id = %s AND state = 'delivered'", answer["event_id"])
    assert sources == [("lookup",)]
    assert len(tenant.accepted(number)) == 1


def test_what_nobody_ever_hears_of_reaches_its_horizon_and_a_person_is_asked(tenant: House) -> None:
    number = "+14165550123"  # in the country that the short-sighted route serves
    tenant.rule(number, receipts="lost", path=[{"status": "sent", "after_ms": 50}])
    answer = tenant.post(tenant.request(sms=number))

    items = tenant.await_state(answer["event_id"], "unknown")

    assert [item["state"] for item in items] == ["queued", "handed_off", "unknown"]
    review = "SELECT cause FROM review WHERE event_id = %s AND settled_at IS NULL"
    assert eventually(lambda: tenant.sql(review, answer["event_id"])) == [("horizon",)]
    assert len(tenant.accepted(number)) == 1


def test_a_second_key_on_the_same_fact_joins_and_contacts_nobody(tenant: House) -> None:
    number = new_number()
    tenant.rule(number, receipts=[{"status": "sent", "after_ms": 50}, {"status": "delivered", "after_ms": 1500}])
    body = tenant.request(sms=number)
    first = tenant.post(body)
    tenant.await_state(first["event_id"], "handed_off")
    during = tenant.post(body, **{"Idempotency-Key": "during"})
    tenant.await_state(first["event_id"], "delivered")

    after = tenant.post(body, **{"Idempotency-Key": "after"})

    joined = [(answer["intents"][0]["intent_id"], answer["intents"][0]["joined"]) for answer in (during, after)]
    assert joined == [(first["intents"][0]["intent_id"], True)] * 2
    assert tenant.history(after["event_id"]) == tenant.history(first["event_id"])
    assert len(tenant.accepted(number)) == 1


def test_an_offer_leaves_when_its_hours_open(tenant: House, offer: dict[str, Any]) -> None:
    event_id = offer["event_id"]
    opens_at = datetime.fromisoformat(tenant.history(event_id)[1]["next_at"])

    items = tenant.await_state(event_id, "delivered", seconds=120)

    assert [item["state"] for item in items] == ["queued", "deferred", "handed_off", "delivered"]
    assert items[1]["reason"] == "outside_window"
    accepted_at = datetime.fromtimestamp(tenant.accepted(_number_of(tenant, event_id))[0]["accepted_at"], UTC)
    assert accepted_at >= opens_at


def _number_of(house: House, event_id: str) -> str:
    key = house.sql("SELECT attempt_key FROM attempt WHERE event_id = %s", event_id)[0][0]
    rows = house.client.get(f"{house.ready['simulator_url']}/_sim/accepted", params={"key": key}).json()
    number: str = rows[0]["to"]
    return number


def test_after_all_this_the_books_balance(house: House) -> None:
    told = house.daybook("audit", "--full")

    assert told.returncode == 0, told.stdout + told.stderr
