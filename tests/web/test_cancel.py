"""Cancelling: what is ours stops, what left is told of, and a repetition answers the same."""

from __future__ import annotations

from policy.states import AttemptState
from tests.making import clock, committing, make_attempt
from tests.web.calling import Api, body_of, code_of, make_key


def test_what_waits_is_cancelled(api: Api) -> None:
    event_id = api.accepted()["event_id"]

    answer = api.post(f"/v1/events/{event_id}/cancel")

    (intent,) = body_of(answer)["intents"]
    assert answer.status_code == 200
    assert (intent["state"], intent["reason"], intent["handed_off"]) == ("cancelled", "cancelled", False)


def test_repeating_a_cancel_answers_the_same(api: Api) -> None:
    event_id = api.accepted()["event_id"]

    first, second = (api.post(f"/v1/events/{event_id}/cancel") for _ in range(2))

    assert (second.status_code, body_of(second)) == (200, body_of(first))


def test_what_was_handed_off_is_named_and_not_called_back(api: Api) -> None:
    """A text cannot be recalled, and nobody may believe that it was."""
    with committing(api.engine) as session:
        standing = make_attempt(session, api.house, AttemptState.SUBMITTED, remote_id="SM1", now=clock(session))

    first, second = (api.post(f"/v1/events/{standing.event_id}/cancel") for _ in range(2))

    (intent,) = body_of(first)["intents"]
    assert (intent["state"], intent["close_request"], intent["handed_off"]) == ("handed_off", "cancelled", True)
    assert body_of(second) == body_of(first)


def test_an_event_of_another_tenant_is_not_there(api: Api, other: Api) -> None:
    event_id = api.accepted()["event_id"]

    theirs = other.post(f"/v1/events/{event_id}/cancel")
    nobodys = other.post("/v1/events/01a22d33-fc89-7143-b906-38ee21a2bc16/cancel")

    assert code_of(theirs) == code_of(nobodys) == (404, "not_found")
    assert body_of(theirs) | {"request_id": ""} == body_of(nobodys) | {"request_id": ""}
    assert body_of(api.get(f"/v1/events/{event_id}"))["intents"][0]["state"] == "queued"


def test_cancelling_needs_the_scope_to_write(api: Api) -> None:
    event_id = api.accepted()["event_id"]

    assert code_of(make_key(api, "events:read").post(f"/v1/events/{event_id}/cancel")) == (403, "scope_missing")
