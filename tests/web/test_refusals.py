"""Bad input: refused with a problem that names the place, and nothing is written."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from sqlalchemy import create_engine
from werkzeug.test import TestResponse

from tests.making import ask
from tests.web.calling import Api, body_of, books_of, code_of, problem_of, production_log

GOOD = json.dumps(ask())
HUGE = json.dumps(ask(data={"class": "x" * 1_000_000}))


def with_recipient(**changes: object) -> dict[str, Any]:
    return {"recipient": {"ref": "m-1", "sms": "+12015550123"} | changes}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"type": ', id="cut off"),
        pytest.param(b"{'type': 'x'}", id="no JSON"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(GOOD.encode("utf-16"), id="UTF-16"),
        pytest.param(GOOD.replace("Spin", r"\ud800").encode(), id="half a surrogate pair"),
        pytest.param(GOOD.replace('"Spin 18:00"', "NaN").encode(), id="NaN"),
        pytest.param(GOOD.replace('"Spin 18:00"', "1e999").encode(), id="infinity"),
        pytest.param(GOOD.encode() + b"{}", id="two documents"),
        pytest.param(GOOD.replace('"type"', '"subject": "other", "type"').encode(), id="a name twice"),
        pytest.param(b"[" * 30_000 + b"]" * 30_000, id="deep"),
        pytest.param(b"[" * 1000 + b"]" * 1000, id="deep for one parser only"),
    ],
)
def test_what_is_not_one_json_document_is_refused(api: Api, body: bytes) -> None:
    before = books_of(api.engine)

    assert code_of(api.post_bytes("/v1/events", body)) == (400, "malformed_json")
    assert code_of(api.post_bytes("/v1/events/batch", body)) == (400, "malformed_json")
    assert books_of(api.engine) == before


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        (with_recipient(sms="+12345"), "invalid_number", "/recipient/sms"),
        (with_recipient(sms="letters"), "invalid_number", "/recipient/sms"),
        (with_recipient(sms=""), "invalid_number", "/recipient/sms"),
        (with_recipient(sms="2015550123"), "invalid_number", "/recipient/sms"),
        (with_recipient(sms=12015550123), "invalid_number", "/recipient/sms"),
        (with_recipient(sms="+12015550123\x00"), "invalid_number", "/recipient/sms"),
        (with_recipient(sms=None), "no_address", "/recipient/sms"),
        (with_recipient(ref=""), "invalid_field", "/recipient/ref"),
        (with_recipient(ref="m\x001"), "invalid_field", "/recipient/ref"),
        (with_recipient(ref="m" * 201), "invalid_field", "/recipient/ref"),
        (with_recipient(time_zone="Mars/Olympus"), "invalid_field", "/recipient/time_zone"),
        (with_recipient(time_zone="../../etc/passwd"), "invalid_field", "/recipient/time_zone"),
        (with_recipient(colour="blue"), "unknown_field", "/recipient/colour"),
        ({"recipient": "m-1"}, "invalid_field", "/recipient"),
        ({"type": 7}, "invalid_field", "/type"),
        ({"type": None}, "invalid_field", "/type"),
        ({"subject": ["c-1"]}, "invalid_field", "/subject"),
        ({"subject": "c\x00"}, "invalid_field", "/subject"),
        ({"template": "nobody-published-this"}, "unknown_template", "/template"),
        ({"template": "class-opening@99"}, "unknown_template", "/template"),
        ({"template": "Class Opening"}, "invalid_field", "/template"),
        ({"data": {}}, "missing_variable", "/data/class"),
        ({"data": []}, "invalid_field", "/data"),
        ({"data": {"class": {"name": "Spin"}}}, "invalid_field", "/data/class"),
        ({"data": {"class": "Spin\x00"}}, "invalid_field", "/data/class"),
        ({"data": {"class": "Spin", "n": 2**60}}, "invalid_field", "/data/n"),
        ({"data": {"class": ""}, "template": "class-opening", "category": "marketing"}, "category_mismatch", "/category"),
        ({"channels": ["pigeon"]}, "invalid_field", "/channels"),
        ({"channels": []}, "invalid_field", "/channels"),
        ({"channels": None}, "invalid_field", "/channels"),
        ({"expires_at": "2001-01-01T00:00:00Z"}, "already_expired", "/expires_at"),
        ({"expires_at": "2036-12-01T18:00:00"}, "invalid_field", "/expires_at"),
        ({"expires_at": "2036-12-01"}, "invalid_field", "/expires_at"),
        ({"expires_at": 1796148000}, "invalid_field", "/expires_at"),
        ({"expires_at": "2036-13-01T18:00:00Z"}, "invalid_field", "/expires_at"),
        ({"not_before": "2036-12-01T18:00:00"}, "invalid_field", "/not_before"),
        ({"not_before": "9999-12-31T23:59:59-14:00"}, "invalid_field", "/not_before"),
        ({"not_before": "0001-01-01T00:00:00+14:00"}, "invalid_field", "/not_before"),
        ({"metadata": {"a": 1}}, "invalid_field", "/metadata/a"),
        ({"metadata": {str(n): "x" for n in range(21)}}, "invalid_field", "/metadata"),
        ({"stake": {"count": -1, "unit": "seat"}}, "invalid_field", "/stake/count"),
        ({"subject": "\U0010fffd" * 200}, "invalid_field", "/subject"),
        ({"surprise": 1}, "unknown_field", "/surprise"),
        ({"key": "k" * 256}, "invalid_key", "/key"),
        ({"key": 5}, "invalid_key", "/key"),
    ],
)
def test_a_bad_field_is_named_and_nothing_is_written(api: Api, changes: dict[str, Any], code: str, pointer: str) -> None:
    before = books_of(api.engine)

    answer = api.post_event(**changes)

    assert code_of(answer) == (422, code)
    assert pointer in [e["pointer"] for e in problem_of(answer)["errors"]]
    assert books_of(api.engine) == before


def test_every_mistake_of_a_request_is_named_at_once(api: Api) -> None:
    problem = problem_of(api.post_event(type="", expires_at="soon", surprise=1))

    assert problem["code"] == "invalid_request"
    assert {e["pointer"]: e["code"] for e in problem["errors"]} == {
        "/type": "invalid_field",
        "/expires_at": "invalid_field",
        "/surprise": "unknown_field",
    }


def test_a_large_number_that_is_no_mistake_is_taken(api: Api) -> None:
    assert api.accepted(data={"class": "Spin", "n": 2**53, "x": 1e300})["accepted"] is True


def test_a_megabyte_is_refused_and_nothing_is_written(api: Api) -> None:
    before = books_of(api.engine)

    assert code_of(api.post_bytes("/v1/events", HUGE.encode())) == (413, "too_large")
    assert code_of(api.post_bytes("/v1/events/batch", b"[" + b" " * 6_000_000 + b"]")) == (413, "too_large")
    assert books_of(api.engine) == before


@pytest.mark.parametrize(("size", "answered"), [(65_536, (400, "malformed_json")), (65_537, (413, "too_large"))])
def test_a_body_in_chunks_is_measured_too(api: Api, size: int, answered: tuple[int, str]) -> None:
    """Without a length at the front a body could be cut off and taken for a shorter one."""
    answer = api.client.post(
        "/v1/events",
        input_stream=io.BytesIO(b"x" * size),
        content_type="application/json",
        headers={"Authorization": f"Bearer {api.key}"},
        environ_overrides={"wsgi.input_terminated": True},
    )

    assert code_of(answer) == answered


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_does_not_claim_to_be_json_is_refused(api: Api, content_type: str) -> None:
    answer = api.post_bytes("/v1/events", GOOD.encode(), content_type=content_type)

    assert code_of(answer) == (415, "unsupported_media_type")
    assert books_of(api.engine)["event"] == 0


def test_who_has_no_key_is_told_that_before_anything_else(api: Api) -> None:
    """What is wrong with a request is for those who may ask."""
    stranger = "Bearer dbk_01a22d33fc897143b90638ee21a2bc16_" + "A" * 43
    asked = {"data": b"{", "content_type": "text/plain"}

    without = api.client.post("/v1/events", data=asked["data"], content_type="text/plain")
    unknown = api.client.post("/v1/events", data=asked["data"], content_type="text/plain", headers={"Authorization": stranger})

    assert [code_of(a) for a in (without, unknown)] == [(401, "unauthorized")] * 2


def test_what_werkzeug_refuses_is_a_problem_too(api: Api) -> None:
    lost, wrong = api.get("/nowhere"), api.client.delete("/v1/events")

    assert [code_of(a) for a in (lost, wrong)] == [(404, "not_found"), (405, "method_not_allowed")]
    assert "POST" in wrong.headers["Allow"]


def test_an_unexpected_failure_says_nothing_of_its_cause(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> TestResponse:
        raise RuntimeError("+12015550123 is what only the person may know")

    monkeypatch.setattr("web.api.reasons.as_caller", fail)

    with production_log() as log:
        answer = api.get("/v1/reasons")

    assert code_of(answer) == (500, "internal")
    told = answer.get_data(as_text=True) + log.getvalue()
    assert "RuntimeError" in told
    assert "2015550123" not in told


def test_a_process_whose_connections_are_all_in_use_asks_to_come_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow = create_engine(api.engine.url, pool_size=1, max_overflow=0, pool_timeout=0.05)
    monkeypatch.setattr("app.ground.db.engine", lambda: narrow)

    with narrow.connect():
        answer = api.post_event()
    narrow.dispose()

    assert code_of(answer) == (503, "database_away")
    assert answer.headers["Retry-After"] == "2"
    assert books_of(api.engine)["event"] == 0


def test_refusals_of_a_batch_are_problems(api: Api) -> None:
    (result,) = body_of(api.post("/v1/events/batch", {"events": [ask(template="no")]}))["results"]

    assert set(result) == {"type", "title", "status", "detail", "code", "errors", "request_id"}
    assert result["type"] == "/docs#unknown_template"
