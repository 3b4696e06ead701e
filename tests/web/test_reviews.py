"""Reviews over HTTP: listed by group and one by one, settled once, for operators."""

from __future__ import annotations

from typing import Any

import pytest

from app.ground.db import rows
from app.ledger.books import lock_books
from app.ledger.review import park
from policy.words import Reason
from tests.making import BEN, Standing, clock, committing, make_queued, outbox_of
from tests.web.calling import Api, body_of, code_of, make_key, problem_of

SETTLED = {"as": "resend", "reason": "workers were out of memory"}


def park_one(api: Api, reason: Reason = Reason.LOST_LEASES, **changes: Any) -> Standing:
    """Park one event's row, which is a question."""
    with committing(api.engine) as session:
        now = clock(session)
        standing = make_queued(session, api.house, now=now, **changes)
        park(session, lock_books(session, [standing.intent_id]), {standing.attempt_id: reason}, now=now)
    return standing


@pytest.fixture
def parked(api: Api) -> list[Standing]:
    """Give three questions of two kinds."""
    return [
        park_one(api, stake={"count": 2, "unit": "seat"}),
        park_one(api, ref="m-2", sms=BEN, stake={"count": 1, "unit": "seat"}),
        park_one(api, Reason.ARTIFACT_MISMATCH, ref="m-3", sms="+12015550125"),
    ]


def route_of(api: Api) -> str:
    with committing(api.engine) as session:
        name: str = rows(session, "SELECT name FROM route WHERE id = %(id)s", id=api.house.route_id)[0].name
    return name


def listed(api: Api, query: str = "") -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body_of(api.get(f"/v1/reviews{query}"))["items"]
    return items


def test_questions_are_grouped_with_count_age_and_stake(api: Api, parked: list[Standing]) -> None:
    groups = body_of(api.get("/v1/reviews/groups"))["items"]

    oldest = listed(api)[0]
    assert [(g["route"], g["cause"], g["count"], g["stake"]) for g in groups] == [
        (route_of(api), "lost_leases", 2, [{"count": 3, "unit": "seat"}]),
        (route_of(api), "artifact_mismatch", 1, []),
    ]
    assert groups[0]["oldest_at"] == oldest["opened_at"]
    assert groups[0]["oldest_seconds"] >= groups[1]["oldest_seconds"] >= 0
    assert oldest["event_id"] == str(parked[0].event_id)


def test_questions_come_one_by_one_by_cursor_each_with_its_answers(api: Api, parked: list[Standing]) -> None:
    first = body_of(api.get("/v1/reviews?limit=2"))
    last = body_of(api.get(f"/v1/reviews?limit=2&after={first['next_cursor']}"))

    seen = [item["event_id"] for page in (first, last) for item in page["items"]]
    assert seen == [str(s.event_id) for s in parked]
    assert (len(first["items"]), last["next_cursor"]) == (2, None)
    assert first["items"][0]["answers"] == ["failed", "resend"]
    assert [item["event_id"] for item in listed(api, "?cause=artifact_mismatch")] == [str(parked[2].event_id)]
    assert listed(api, "?route=nowhere") == []


def test_one_is_settled_and_the_second_to_try_is_told_by_whom(api: Api, parked: list[Standing]) -> None:
    path = f"/v1/reviews/{listed(api)[0]['id']}"

    settled = api.post(f"{path}/settle", SETTLED)
    second = api.post(f"{path}/settle", SETTLED | {"as": "failed"})

    body = body_of(settled)
    assert (settled.status_code, body["settled_as"], body["settled_reason"]) == (200, "resend", SETTLED["reason"])
    assert body == body_of(api.get(path))
    assert (code_of(second), problem_of(second)["detail"].startswith(f"settled as resend by {body['settled_by']}")) == (
        (409, "already_settled"),
        True,
    )
    with committing(api.engine) as session:
        assert outbox_of(session, parked[0]).due_at is not None


def test_what_cannot_be_is_told_and_changes_nothing(api: Api, parked: list[Standing]) -> None:
    path = f"/v1/reviews/{listed(api)[0]['id']}/settle"

    told = api.post(path, SETTLED | {"as": "leave"})
    personal = api.post(path, SETTLED | {"reason": "called +12015550123"})

    assert (code_of(told), problem_of(told)["detail"].startswith("the row is parked")) == ((409, "cannot_settle"), True)
    assert code_of(personal) == (422, "personal_value")
    assert len(listed(api)) == len(parked)


def test_a_group_is_settled_with_the_count_that_was_read(api: Api, parked: list[Standing]) -> None:
    group = {"route": route_of(api), "cause": "lost_leases"} | SETTLED

    wrong = api.post("/v1/reviews/settle", group | {"count": 3})
    still = len(listed(api))
    right = api.post("/v1/reviews/settle", group | {"count": 2})

    assert (code_of(wrong), problem_of(wrong)["detail"]) == (
        (409, "count_changed"),
        "2 are open in this group now, not 3",
    )
    assert (still, body_of(right)) == (len(parked), {"settled": 2, "left": []})
    assert [item["cause"] for item in listed(api)] == ["artifact_mismatch"]


def test_what_of_a_group_cannot_be_settled_so_is_counted_by_why(api: Api, parked: list[Standing]) -> None:
    group = {"route": route_of(api), "cause": "lost_leases", "count": 2} | SETTLED | {"as": "delivered"}

    answered = body_of(api.post("/v1/reviews/settle", group))

    assert (answered["settled"], [(left["why"], left["count"]) for left in answered["left"]]) == (0, [("parked", 2)])
    assert len(listed(api)) == len(parked)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"route": "nowhere"}, (422, "unknown_route")),
        ({"count": 0}, (422, "invalid_field")),
        ({"as": "sent"}, (422, "invalid_field")),
        ({"reason": None}, (422, "invalid_field")),
        ({"csuse": "lost_leases"}, (422, "unknown_field")),
    ],
)
def test_a_mistake_settles_nothing(
    api: Api, parked: list[Standing], changes: dict[str, object], expected: tuple[int, str]
) -> None:
    group = {"route": route_of(api), "cause": "lost_leases", "count": 2} | SETTLED

    assert code_of(api.post("/v1/reviews/settle", group | changes)) == expected
    assert len(listed(api)) == len(parked)


def test_reviews_are_for_operators_of_the_tenant(api: Api, other: Api, parked: list[Standing]) -> None:
    path = f"/v1/reviews/{listed(api)[0]['id']}"
    teller = make_key(api, "events:write", "events:read", "history:read")

    calls = [teller.get("/v1/reviews"), teller.get("/v1/reviews/groups"), teller.post(f"{path}/settle", SETTLED)]

    assert [code_of(call) for call in calls] == [(403, "scope_missing")] * 3
    assert (listed(other), body_of(other.get("/v1/reviews/groups"))) == ([], {"items": []})
    assert code_of(other.get(path)) == code_of(other.post(f"{path}/settle", SETTLED)) == (404, "not_found")
    assert len(listed(api)) == len(parked)
