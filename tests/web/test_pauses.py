"""Pauses over HTTP: the operator's brake, for operators."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.web.calling import Api, body_of, code_of, make_key, problem_of


def test_a_pause_is_listed_until_it_is_resumed(api: Api) -> None:
    made = api.post("/v1/pauses", {"lane": "bulk", "reason": "carrier is slow"})
    listed = body_of(api.get("/v1/pauses"))["items"]
    other_scope = body_of(api.post("/v1/pauses/resume", {"reason": "wrong scope"}))
    resumed = body_of(api.post("/v1/pauses/resume", {"lane": "bulk", "reason": "it is well again"}))

    assert made.status_code == 201
    assert [(p["id"], p["lane"], p["cause"]) for p in listed] == [(body_of(made)["id"], "bulk", "carrier is slow")]
    assert (other_scope, resumed) == ({"ended": 0}, {"ended": 1})
    assert body_of(api.get("/v1/pauses")) == {"items": []}


def test_who_paused_is_written_down(api: Api) -> None:
    api.post("/v1/pauses", {"reason": "stop"})

    with api.engine.connect() as connection:
        actors = connection.execute(text("SELECT actor FROM operator_action")).scalars().all()
    assert [actor.partition(":")[0] for actor in actors] == ["key"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/reason"),
        ([], ""),
        ({"reason": "x", "rout": "a"}, "/rout"),
        ({"reason": "x\x00"}, "/reason"),
        ({"reason": "x", "lane": "fast"}, "/lane"),
        ({"reason": "x", "category": 5}, "/category"),
    ],
)
def test_a_bad_pause_is_refused(api: Api, body: object, pointer: str) -> None:
    """A misspelt scope would hold everything."""
    answer = api.post("/v1/pauses", body)

    assert answer.status_code == 422
    assert [e["pointer"] for e in problem_of(answer)["errors"]] == [pointer]
    assert body_of(api.get("/v1/pauses")) == {"items": []}


def test_a_route_that_is_not_there_cannot_be_paused(api: Api) -> None:
    assert code_of(api.post("/v1/pauses", {"route": "nobody", "reason": "x"})) == (422, "unknown_route")


def test_pauses_are_for_operators(api: Api) -> None:
    teller = make_key(api, "events:write", "events:read", "history:read")

    answers = [
        teller.get("/v1/pauses"),
        teller.post("/v1/pauses", {"reason": "x"}),
        teller.post("/v1/pauses/resume", {"reason": "x"}),
    ]

    assert [code_of(a) for a in answers] == [(403, "scope_missing")] * 3


def test_another_tenant_sees_and_ends_no_pause_of_ours(api: Api, other: Api) -> None:
    api.post("/v1/pauses", {"reason": "stop"})

    assert body_of(other.get("/v1/pauses")) == {"items": []}
    assert body_of(other.post("/v1/pauses/resume", {"reason": "go"})) == {"ended": 0}
    assert len(body_of(api.get("/v1/pauses"))["items"]) == 1
