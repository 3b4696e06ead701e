"""Cancelling an occasion over HTTP: who is not told any more, who was, and one answer under one key."""

from __future__ import annotations

from typing import Any, Final

import pytest
from werkzeug.test import TestResponse

from policy.states import AttemptState
from tests.making import clock, committing, make_attempt
from tests.web.calling import Api, body_of, books_of, code_of, make_key, problem_of

SEAT: Final = {"type": "class.opening", "subject": "c-1", "reason": "seat filled"}


def cancel(api: Api, changes: dict[str, Any] | None = None, **headers: str) -> TestResponse:
    return api.post("/v1/cancellations", SEAT | (changes or {}), **headers)


def states_of(api: Api, *events: dict[str, Any]) -> list[str]:
    return [body_of(api.get(f"/v1/events/{event['event_id']}"))["intents"][0]["state"] for event in events]


def counts(**found: int) -> dict[str, int]:
    return dict.fromkeys(("cancelled", "handed_off", "joined", "closed", "excepted"), 0) | found


def handed_off(api: Api, *refs: str) -> None:
    with committing(api.engine) as session:
        now = clock(session)
        for n, ref in enumerate(refs):
            make_attempt(session, api.house, AttemptState.SUBMITTED, ref=ref, sms=f"+120155501{n + 10}", now=now)


def test_whoever_waits_for_the_occasion_is_cancelled_and_nobody_else(api: Api) -> None:
    ours = [api.accepted(ref=ref) for ref in ("m-1", "m-2")]
    others = [api.accepted(subject="c-2"), api.accepted(type="class.closing")]

    answer = cancel(api)

    body = body_of(answer)
    assert (answer.status_code, body["counts"], body["handed_off"], body["next_cursor"]) == (201, counts(cancelled=2), [], None)
    assert states_of(api, *ours) == ["cancelled", "cancelled"]
    assert "cancelled" not in states_of(api, *others)


def test_the_one_who_got_the_seat_is_excepted(api: Api) -> None:
    first, other = api.accepted(ref="m-1"), api.accepted(ref="m-2", sms="+12015550124")

    body = body_of(cancel(api, {"except": ["m-1", "m-1"]}))

    assert (body["counts"], body["except"]) == (counts(cancelled=1, excepted=1), ["m-1"])
    assert states_of(api, first, other) == ["queued", "cancelled"]


def test_what_was_handed_off_is_named_page_by_page(api: Api) -> None:
    handed_off(api, "m-1", "m-2", "m-3")

    body = body_of(cancel(api))
    first = body_of(api.get(f"/v1/cancellations/{body['id']}?limit=2"))
    second = body_of(api.get(f"/v1/cancellations/{body['id']}?limit=2&after={first['next_cursor']}"))

    pages = first["handed_off"] + second["handed_off"]
    assert body["counts"] == counts(handed_off=3)
    assert (pages, second["next_cursor"]) == (body["handed_off"], None)
    assert sorted(h["recipient"] for h in pages) == ["m-1", "m-2", "m-3"]
    assert {(h["state"], h["close_request"]) for h in pages} == {("handed_off", "cancelled")}


def test_the_same_key_is_the_same_cancellation_and_cancels_nothing_anew(api: Api) -> None:
    api.accepted(ref="m-1")
    first = cancel(api, Idempotency_Key="seat-1")
    late = api.accepted(ref="m-2", sms="+12015550124")

    again = cancel(api, Idempotency_Key="seat-1")

    assert (first.status_code, again.status_code) == (201, 200)
    assert body_of(again) == body_of(first) | {"duplicate": True}
    assert states_of(api, late) == ["queued"]


def test_the_same_key_for_something_else_is_refused(api: Api) -> None:
    waiting = api.accepted(subject="c-2")
    cancel(api, Idempotency_Key="seat-1")

    assert code_of(cancel(api, {"subject": "c-2"}, Idempotency_Key="seat-1")) == (422, "key_reused")
    assert states_of(api, waiting) == ["queued"]


def test_repeating_without_a_key_is_a_new_cut(api: Api) -> None:
    api.accepted(ref="m-1")
    cancel(api)
    late = api.accepted(ref="m-2", sms="+12015550124")

    again = cancel(api)

    assert (again.status_code, body_of(again)["counts"]) == (201, counts(cancelled=1, closed=1))
    assert states_of(api, late) == ["cancelled"]


def test_nobody_waiting_is_an_answer_as_well(api: Api) -> None:
    assert body_of(cancel(api))["counts"] == counts()


def test_another_tenants_people_are_not_touched_and_its_cancellations_not_there(api: Api, other: Api) -> None:
    theirs = other.accepted()

    body = body_of(cancel(api))

    assert (body["counts"], states_of(other, theirs)) == (counts(), ["queued"])
    assert code_of(other.get(f"/v1/cancellations/{body['id']}")) == (404, "not_found")


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"type": None}, "invalid_field", "/type"),
        ({"subject": ""}, "invalid_field", "/subject"),
        ({"reason": None}, "invalid_field", "/reason"),
        ({"except": "m-1"}, "invalid_field", "/except"),
        ({"except": ["m-1", ""]}, "invalid_field", "/except"),
        ({"exept": ["m-1"]}, "unknown_field", "/exept"),
        ({"subject": "+12015550123"}, "personal_value", "/subject"),
        ({"except": ["m-1", "ann@example.test"]}, "personal_value", "/except/1"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_cancels_nothing(api: Api, changes: dict[str, Any], code: str, pointer: str) -> None:
    api.accepted()
    before = books_of(api.engine)

    problem = problem_of(cancel(api, changes))

    assert [(e["code"], e["pointer"]) for e in problem["errors"]] == [(code, pointer)]
    assert books_of(api.engine) == before


def test_a_key_that_is_none_and_a_cursor_that_is_none_are_refused(api: Api) -> None:
    body = body_of(cancel(api))

    assert code_of(cancel(api, Idempotency_Key='""')) == (422, "invalid_key")
    assert code_of(api.get(f"/v1/cancellations/{body['id']}?after=x")) == (400, "unknown_cursor")


def test_scopes(api: Api) -> None:
    assert code_of(cancel(make_key(api, "events:read"))) == (403, "scope_missing")
    assert code_of(make_key(api, "events:write").get(f"/v1/cancellations/{body_of(cancel(api))['id']}")) == (403, "scope_missing")
