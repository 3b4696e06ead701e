"""History over HTTP: pages by cursor, filters, and answers that need not be sent again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.calling import Api, body_of, code_of, make_key, problem_of

ITEM = {"id", "at", "event_id", "key", "type", "subject", "intent_id", "channel", "attempt", "n", "state", "reason", "next_at"}
PAGE = {"items", "next_cursor", "has_more", "complete_until", "server_time", "poll_after_seconds"}


def history(api: Api, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/v1/history?{query}")
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return body_of(answer)


def test_a_page_has_the_shape_of_the_design(api: Api) -> None:
    accepted = api.accepted()

    page = history(api)

    (item,) = page["items"]
    assert (set(page), set(item)) == (PAGE, ITEM)
    assert (item["event_id"], item["n"], item["state"], item["attempt"]) == (accepted["event_id"], 1, "queued", 1)
    assert item["at"].endswith("Z")
    assert item["at"] <= page["complete_until"] <= page["server_time"]
    assert (page["has_more"], 4 <= page["poll_after_seconds"] <= 6) == (False, True)


def test_an_empty_history_still_gives_a_cursor_to_go_on_from(api: Api) -> None:
    empty = history(api)
    api.accepted()

    assert empty["items"] == []
    assert len(history(api, f"after={empty['next_cursor']}")["items"]) == 1


def test_walking_by_cursor_sees_each_change_once_and_in_order(api: Api) -> None:
    events = [api.accepted(subject=f"c-{n}") for n in range(4)]
    [api.post(f"/v1/events/{e['event_id']}/cancel") for e in events]

    seen, cursor, more = [], "", True
    while more:
        page = history(api, f"limit=3&{cursor}")
        seen += page["items"]
        cursor, more = f"after={page['next_cursor']}", page["has_more"]

    assert len({item["id"] for item in seen}) == len(seen) == 8
    assert all([i["n"] for i in seen if i["event_id"] == e["event_id"]] == [1, 2] for e in events)
    assert history(api, cursor)["items"] == []


def test_history_can_be_of_one_recipient_or_one_event(api: Api) -> None:
    anna, ben = api.accepted(ref="anna"), api.accepted(ref="ben", subject="b")

    assert [i["event_id"] for i in history(api, "recipient=anna")["items"]] == [anna["event_id"]]
    assert [i["event_id"] for i in history(api, f"event={ben['event_id']}")["items"]] == [ben["event_id"]]
    assert history(api, f"event={ben['event_id']}&recipient=anna")["items"] == []


def test_an_unchanged_page_is_not_sent_again(api: Api) -> None:
    """The clock in the body moves on, the tag does not."""
    api.accepted()
    tag = api.get("/v1/history").headers["ETag"]

    unchanged = api.get("/v1/history", If_None_Match=tag)
    api.accepted(subject="another")
    changed = api.get("/v1/history", If_None_Match=tag)

    assert (unchanged.status_code, unchanged.data, unchanged.headers["ETag"]) == (304, b"", tag)
    assert changed.status_code == 200
    assert changed.headers["ETag"] != tag


def test_another_tenants_events_are_in_nobody_elses_history(api: Api, other: Api) -> None:
    theirs = api.accepted()

    assert history(other)["items"] == []
    assert history(other, f"event={theirs['event_id']}")["items"] == []
    assert history(other, "recipient=m-1")["items"] == []


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "?limit"),
        ("limit=101", "?limit"),
        ("limit=many", "?limit"),
        ("limit=1&limit=2", "?limit"),
        ("recipient=", "?recipient"),
        ("recipient=%00", "?recipient"),
        ("event=1", "?event"),
        ("after=", "?after"),
        ("recipent=anna", "?recipent"),
    ],
)
def test_a_bad_query_is_refused_rather_than_ignored(api: Api, query: str, pointer: str) -> None:
    """A misspelt filter that is ignored shows everybody's history."""
    answer = api.get(f"/v1/history?{query}")

    assert answer.status_code == 422
    assert [e["pointer"] for e in problem_of(answer)["errors"]] == [pointer]


@pytest.mark.parametrize("cursor", ["x", "1", "1.", ".1", "999.1", "1.-1", "1.1e3", "1." + "9" * 60])
def test_a_cursor_that_is_none_of_ours_is_refused(api: Api, cursor: str) -> None:
    assert code_of(api.get(f"/v1/history?after={cursor}")) == (400, "unknown_cursor")


def test_history_needs_its_scope(api: Api) -> None:
    assert code_of(make_key(api, "events:write", "events:read").get("/v1/history")) == (403, "scope_missing")


def test_every_reason_is_published(api: Api) -> None:
    items = body_of(api.get("/v1/reasons"))["items"]

    assert {"opted_out", "cooldown", "auth_config"} <= {i["code"] for i in items}
    assert all(i["meaning"] and i["what_to_do"] for i in items)
