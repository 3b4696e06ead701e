"""Posting events: what is answered, and that a repetition is the same event."""

from __future__ import annotations

from typing import Any

import pytest

from app.desk.configure import NewTemplate, publish_template
from app.limits import client as valkey
from tests.making import ask, clock, committing
from tests.web.calling import Api, body_of, books_of, code_of, make_key, problem_of

FULL: dict[str, Any] = {
    "type": "class.opening",
    "subject": "c-9081",
    "recipient": {"ref": "m-1842", "sms": "+12015550123", "time_zone": "America/New_York", "locale": "en-US"},
    "template": "class-opening",
    "data": {"class": "Spin 18:00"},
    "channels": ["sms"],
}


def test_a_new_event_is_answered_as_the_design_shows_it(api: Api) -> None:
    answer = api.post("/v1/events", FULL)

    body = body_of(answer)
    (intent,) = body.pop("intents")
    event_id, intent_id = body.pop("event_id"), intent.pop("intent_id")
    assert answer.status_code == 202
    assert answer.content_type == "application/json"
    assert (len(event_id), len(intent_id)) == (36, 36)
    assert body == {
        "key": "class.opening/c-9081/m-1842",
        "accepted": True,
        "duplicate": False,
        "template": "class-opening@1",
        "category": "transactional",
        "policy": "sample@2026-11-01",
    }
    assert intent == {"channel": "sms", "state": "queued", "reason": None, "next_at": None}


def test_a_repetition_is_the_same_event(api: Api) -> None:
    first, second = api.post("/v1/events", FULL), api.post("/v1/events", FULL)

    assert (first.status_code, second.status_code) == (202, 200)
    assert body_of(second) == body_of(first) | {"duplicate": True}
    assert books_of(api.engine)["event"] == 1


def test_a_repetition_is_the_same_event_after_the_template_changed(api: Api) -> None:
    """A retry must find its event again, whatever was published in between."""
    first = api.accepted()
    with committing(api.engine) as session:
        template = NewTemplate("class-opening", "marketing", ["class", "trainer"], {"en": "{{ class }} {{ trainer }}"}, "en")
        publish_template(session, tenant_id=api.house.tenant_id, template=template, now=clock(session))

    assert api.accepted() == first | {"duplicate": True}


def test_a_key_with_other_content_is_refused_and_nothing_is_written(api: Api) -> None:
    api.accepted(key="k-1")
    before = books_of(api.engine)

    answer = api.post_event(key="k-1", subject="another")

    assert code_of(answer) == (422, "key_reused")
    assert [e["pointer"] for e in problem_of(answer)["errors"]] == ["/key"]
    assert books_of(api.engine) == before


def test_the_key_may_come_in_the_header_and_in_quotes(api: Api) -> None:
    in_body = api.accepted(key="k-1")

    in_header = api.post("/v1/events", ask(), Idempotency_Key='"k-1"')

    assert (in_header.status_code, body_of(in_header)) == (200, in_body | {"duplicate": True})


def test_header_and_body_must_not_name_two_keys(api: Api) -> None:
    answer = api.post("/v1/events", ask(key="k-1"), Idempotency_Key="k-2")

    assert code_of(answer) == (422, "invalid_key")
    assert books_of(api.engine)["event"] == 0


@pytest.mark.parametrize("key", ["k" * 255, "k", "a b", "~!/"])
def test_a_key_of_1_to_255_printable_characters_is_taken(api: Api, key: str) -> None:
    assert api.accepted(key=key)["key"] == key


@pytest.mark.parametrize("key", ["k" * 256, "", " k", "k\n", "kéy", "\x00", '""'])
def test_any_other_key_is_refused(api: Api, key: str) -> None:
    answer = api.post_event(key=key)

    assert code_of(answer) == (422, "invalid_key")
    assert books_of(api.engine)["event"] == 0


def test_a_given_key_and_a_derived_one_never_meet(api: Api) -> None:
    derived = api.accepted()

    given = api.accepted(key=derived["key"])

    assert given["duplicate"] is False
    assert given["event_id"] != derived["event_id"]


def test_a_later_event_on_the_same_business_key_joins_and_says_so(api: Api) -> None:
    first = api.accepted()

    answer = api.post_event(key="explicit")

    (intent,) = body_of(answer)["intents"]
    assert answer.status_code == 202
    assert (intent["intent_id"], intent["joined"]) == (first["intents"][0]["intent_id"], True)


def test_the_doorbell_is_rung_for_a_new_event_only(api: Api) -> None:
    api.accepted()
    rung = valkey().delete("daybook:bell:urgent")
    api.accepted()

    assert rung == 1
    assert valkey().exists("daybook:bell:urgent") == 0


def test_an_event_is_found_again_by_its_id(api: Api) -> None:
    accepted = api.accepted()

    body = body_of(api.get(f"/v1/events/{accepted['event_id']}"))

    accepted.pop("duplicate")
    assert {name: body.pop(name) for name in accepted} == accepted
    assert (body.pop("type"), body.pop("subject"), body.pop("recipient")) == ("class.opening", "c-1", "m-1")
    assert [body.pop("accepted_at")[-1], body.pop("expires_at")[-1]] == ["Z", "Z"]
    assert body == {}


def test_a_batch_answers_each_event_in_order(api: Api) -> None:
    before = api.accepted(subject="old")
    batch = [ask(subject="new"), ask(subject="old"), ask(subject="bad", sms="+12345"), ask(subject="new"), {}, ask(template="no")]

    answer = api.post("/v1/events/batch", {"events": batch})

    results = body_of(answer)["results"]
    assert answer.status_code == 200
    assert [r["status"] for r in results] == [202, 200, 422, 200, 422, 422]
    assert results[1] == before | {"duplicate": True, "status": 200}
    assert results[3] == results[0] | {"duplicate": True, "status": 200}
    assert [results[i]["code"] for i in (2, 4, 5)] == ["invalid_number", "invalid_field", "unknown_template"]
    assert books_of(api.engine)["event"] == 2


def test_two_bad_events_among_a_thousand_stop_no_other(api: Api) -> None:
    bad = {3: ask(subject="bad", expires_at="2001-01-01T00:00:00Z"), 999: ask(subject="worse", data={})}
    batch = [bad.get(n) or ask(ref=f"m-{n}", subject="s", metadata={"n": str(n)}) for n in range(1000)]

    results = body_of(api.post("/v1/events/batch", {"events": batch}))["results"]

    assert {n: r["code"] for n, r in enumerate(results) if r["status"] != 202} == {3: "already_expired", 999: "missing_variable"}
    assert books_of(api.engine)["event"] == 998
    assert [r["key"] for r in results[4:7]] == ["class.opening/s/m-4", "class.opening/s/m-5", "class.opening/s/m-6"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ([], "/events"),
        ({}, "/events"),
        ({"events": {}}, "/events"),
        ({"events": []}, "/events"),
        ({"events": [{}] * 1001}, "/events"),
        ({"events": [{}], "more": 1}, "/more"),
    ],
)
def test_what_is_no_batch_is_refused_whole(api: Api, body: object, pointer: str) -> None:
    answer = api.post("/v1/events/batch", body)

    assert [e["pointer"] for e in problem_of(answer)["errors"]] == [pointer]
    assert answer.status_code == 422


def test_a_batch_takes_no_key_in_the_header(api: Api) -> None:
    assert code_of(api.post("/v1/events/batch", {"events": [ask()]}, Idempotency_Key="k")) == (422, "invalid_key")


def test_writing_needs_its_scope(api: Api) -> None:
    reader = make_key(api, "events:read", "history:read")

    answers = [reader.post_event(), reader.post("/v1/events/batch", {"events": [ask()]})]

    assert [code_of(a) for a in answers] == [(403, "scope_missing")] * 2
    assert books_of(api.engine)["event"] == 0
