"""The envelope: ids, headers, and logs that say what happened and to nobody whom."""

from __future__ import annotations

import json

import pytest

from tests.making import ask
from tests.web.calling import Api, id_of, production_log

SECRET_WORDS = ("2015550123", "m-1842", "Yoga with Zoe", "c-9081", "k-secret", "New_York")


@pytest.mark.parametrize("given", ["a", "A.b_c-9", "x" * 64])
def test_a_request_id_of_the_callers_is_kept(api: Api, given: str) -> None:
    assert api.get("/v1/reasons", X_Request_Id=given).headers["X-Request-Id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a;b", "é"])
def test_any_other_is_replaced(api: Api, given: str) -> None:
    made = api.get("/v1/reasons", X_Request_Id=given).headers["X-Request-Id"]

    assert made != given
    assert len(made) == 32


def test_answers_tell_browsers_to_do_nothing_with_them(api: Api) -> None:
    headers = api.get("/v1/reasons").headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in headers


def test_each_request_is_one_line_with_its_rule_and_its_tenant(api: Api) -> None:
    event_id = id_of(api.accepted())

    with production_log() as log:
        api.get(f"/v1/events/{event_id}", X_Request_Id="r-1")

    (line,) = [json.loads(text) for text in log.getvalue().splitlines()]
    assert {name: line[name] for name in ("event", "method", "route", "status", "request_id", "tenant_id")} == {
        "event": "request",
        "method": "GET",
        "route": "/v1/events/<uuid:event_id>",
        "status": 200,
        "request_id": "r-1",
        "tenant_id": str(api.house.tenant_id),
    }
    assert line["duration_ms"] >= 0


def test_nothing_personal_is_logged(api: Api) -> None:
    event = ask(
        subject="c-9081",
        key="k-secret",
        data={"class": "Yoga with Zoe"},
        recipient={"ref": "m-1842", "sms": "+12015550123", "time_zone": "America/New_York"},
    )
    with production_log() as log:
        api.post("/v1/events", event)
        api.post("/v1/events", event | {"subject": "other"})
        api.post("/v1/events", event | {"Yoga with Zoe": 1, "template": "c-9081"})
        api.post("/v1/events/batch", {"events": [event, event | {"data": {"m-1842": "Yoga with Zoe"}}]})
        api.get("/v1/history?recipient=m-1842")
        api.get("/v1/history?m-1842=c-9081")
        api.get("/m-1842/c-9081")
        api.client.get(f"/v1/receipts/{api.house.route_id}?To=%2B12015550123")
        api.client.open("/v1/events", method="M-1842")

    told = log.getvalue()

    assert told.count('"event":"request"') == 9
    assert [word for word in SECRET_WORDS if word.lower() in told.lower()] == []
    assert api.key not in told
