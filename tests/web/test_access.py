"""Keys: nothing answers without one, and nothing of one tenant shows to another."""

from __future__ import annotations

from uuid import UUID

import pytest
from flask import Flask
from werkzeug.routing import Rule

from app.desk.configure import revoke_key
from app.ground.ids import new_id
from app.ground.keys import new_api_key, read_api_key
from tests.making import clock, committing
from tests.web.calling import Api, body_of, code_of, problem_of
from web.auth import OPEN_BLUEPRINTS

REF = "m-1842"


def operations_of(app: Flask) -> list[tuple[str, Rule]]:
    """List every method of every route."""
    return [(m, rule) for rule in app.url_map.iter_rules() for m in sorted((rule.methods or set()) - {"HEAD", "OPTIONS"})]


def path_of(rule: Rule, ids: dict[str, UUID | str]) -> str:
    """Fill a route's parameters in with what belongs to somebody; of what is not named, with the event's id."""
    _, path = rule.build({name: ids.get(name, ids["event_id"]) for name in rule.arguments}) or ("", "")
    return path


def keyed(app: Flask) -> list[tuple[str, Rule]]:
    """List the operations that are not for strangers."""
    return [(m, r) for m, r in operations_of(app) if r.endpoint.partition(".")[0] not in OPEN_BLUEPRINTS]


def test_what_needs_no_key_is_a_short_list(web_app: Flask) -> None:
    strangers = {rule.rule for _, rule in operations_of(web_app)} - {rule.rule for _, rule in keyed(web_app)}

    carriers = {"/v1/receipts/<uuid:route_id>", "/v1/inbound/<uuid:route_id>"}
    assert strangers == carriers | {"/health/live", "/health/ready", "/docs", "/openapi.json"}


def test_no_operation_answers_without_a_key(web_app: Flask, api: Api) -> None:
    event_id = UUID(api.accepted()["event_id"])

    answers = [
        api.client.open(
            path_of(rule, {"event_id": event_id, "cancellation_id": event_id, "ref": REF}), method=method, json={"reason": "x"}
        )
        for method, rule in keyed(web_app)
    ]

    assert len(answers) >= 9
    assert {code_of(a) for a in answers} == {(401, "unauthorized")}
    assert {a.headers["WWW-Authenticate"] for a in answers} == {'Bearer realm="daybook"'}


def test_no_operation_shows_anything_of_another_tenant(web_app: Flask, api: Api, other: Api) -> None:
    """A foreign id answers exactly as one that nobody has."""
    ours = api.accepted()
    api.post("/v1/pauses", {"reason": "ours alone"})
    api.put(f"/v1/recipients/{REF}", {"locale": "fr-CA", "time_zone": "America/Toronto"})
    called_off = body_of(api.post("/v1/cancellations", {"type": "class.opening", "subject": "c-1", "reason": "ours alone"}))

    def ask_all(event_id: UUID, cancellation_id: UUID, ref: str) -> list[tuple[int, object]]:
        key = {"Authorization": f"Bearer {other.key}"}
        answers = [
            other.client.open(
                path_of(rule, {"event_id": event_id, "cancellation_id": cancellation_id, "ref": ref}),
                method=method,
                json={"reason": "x"},
                headers=key,
            )
            for method, rule in keyed(web_app)
            if rule.rule != "/v1/pauses" or method == "GET"
        ]
        told = [a.get_data(as_text=True) for a in answers]
        assert not [t for t in told if ours["intents"][0]["intent_id"] in t or "ours alone" in t or "c-1" in t or "Toronto" in t]
        return [(a.status_code, a.is_json and body_of(a).get("code")) for a in answers]

    assert ask_all(UUID(ours["event_id"]), UUID(called_off["id"]), REF) == ask_all(new_id(), new_id(), "nobody")


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        "Basic dXNlcjpwYXNz",
        "Bearer dbk__",
        "Bearer dbk_zz_AAAA",
        "Bearer dbk_\x7f_\xff",
        "dbk",
    ],
)
def test_what_is_no_key_of_ours_opens_nothing(api: Api, authorization: str) -> None:
    assert code_of(api.client.get("/v1/history", headers={"Authorization": authorization})) == (401, "unauthorized")


def test_an_unknown_key_and_a_wrong_secret_answer_alike(api: Api) -> None:
    key_id, _ = read_api_key(api.key) or (UUID(int=0), b"")
    wrong, unknown = new_api_key(key_id).text, new_api_key(new_id()).text

    problems = [problem_of(api.client.get("/v1/history", headers={"Authorization": f"Bearer {key}"})) for key in (wrong, unknown)]

    assert problems[0] | {"request_id": ""} == problems[1] | {"request_id": ""}
    assert problems[0]["code"] == "unauthorized"


def test_a_revoked_key_is_refused_at_once(api: Api) -> None:
    before = api.get("/v1/history").status_code
    key_id, _ = read_api_key(api.key) or (UUID(int=0), b"")

    with committing(api.engine) as session:
        revoke_key(session, tenant_id=api.house.tenant_id, key_id=key_id, now=clock(session))

    assert before == 200
    assert code_of(api.get("/v1/history")) == (401, "unauthorized")
