"""Reconciliation over HTTP: every view counted, one read by pages, for operators."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

import pytest

from app.ledger.reconciliation import View
from tests.making import clock, committing, make_event, make_queued
from tests.web.calling import Api, body_of, code_of, make_key, problem_of

JOINED = 3


@pytest.fixture
def joined(api: Api) -> list[str]:
    """Give three events that joined a first one."""
    with committing(api.engine) as session:
        now = clock(session)
        make_queued(session, api.house, now=now)
        stake = {"count": 1, "unit": "seat"}
        views = [make_event(session, api.house, key=f"k-{n}", stake=stake, now=now) for n in range(JOINED)]
    return [str(view.event_id) for view in views]


def test_every_view_is_counted(api: Api, joined: list[str]) -> None:
    items = body_of(api.get("/v1/reconciliation"))["items"]

    counts = {item["view"]: item["count"] for item in items}
    (view,) = (item for item in items if item["view"] == "joined")
    assert counts == dict.fromkeys(View, 0) | {"joined": len(joined)}
    assert (view["stake"], view["oldest_seconds"] >= 0) == ([{"count": JOINED, "unit": "seat"}], True)
    assert all(item["meaning"] for item in items)


def test_a_view_is_read_by_pages(api: Api, joined: list[str]) -> None:
    first = body_of(api.get("/v1/reconciliation/joined?limit=2"))
    last = body_of(api.get(f"/v1/reconciliation/joined?limit=2&after={first['next_cursor']}"))

    rows = [row for page in (first, last) for row in page["items"]]
    assert [row["event_id"] for row in rows] == joined
    assert (first["count"], len(first["items"]), last["next_cursor"]) == (JOINED, 2, None)
    assert (rows[0]["subject"], rows[0]["recipient"], rows[0]["detail"]) == ("c-1", "m-1", "joined one that is queued")


def test_what_happened_once_is_counted_since_an_instant(api: Api, joined: list[str]) -> None:
    with committing(api.engine) as session:
        soon = quote((clock(session) + timedelta(minutes=5)).isoformat())

    page = body_of(api.get(f"/v1/reconciliation/joined?since={soon}"))

    assert (page["count"], page["items"], len(joined)) == (0, [], JOINED)


def test_a_view_that_is_not_there_names_those_that_are(api: Api) -> None:
    answer = api.get("/v1/reconciliation/lost")

    assert code_of(answer) == (404, "not_found")
    assert all(view in problem_of(answer)["detail"] for view in View)


def test_a_zone_that_postgres_does_not_know_is_an_instant_all_the_same(api: Api, joined: list[str]) -> None:
    page = body_of(api.get(f"/v1/reconciliation/joined?since={quote('2020-01-01T00:00:00+23:59')}"))

    assert page["count"] == len(joined)


@pytest.mark.parametrize(
    "query",
    [
        "since=yesterday",
        "since=2026-12-01",
        "since=0001-01-01T00:00:00%2B10:00",
        "limit=0",
        "after=x",
        "sinse=2026-12-01T00:00:00Z",
    ],
)
def test_a_mistake_is_told(api: Api, query: str) -> None:
    assert api.get(f"/v1/reconciliation/joined?{query}").status_code == 422


def test_views_are_for_operators_of_the_tenant(api: Api, other: Api, joined: list[str]) -> None:
    teller = make_key(api, "events:write", "events:read", "history:read")

    calls = [teller.get("/v1/reconciliation"), teller.get("/v1/reconciliation/joined")]

    assert [code_of(call) for call in calls] == [(403, "scope_missing")] * 2
    assert (body_of(other.get("/v1/reconciliation/joined"))["count"], len(joined)) == (0, JOINED)
