"""The OpenAPI document: valid, true of what is answered, and at one with the reader of requests."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from flask import Flask
from flask.testing import FlaskClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from app.ledger.request import NewEvent, read_request
from tests.making import ask
from tests.web.calling import Api, body_of
from web import create_app
from web.problems import PROBLEMS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 50
BATCH = "/v1/events/batch"

TEXTS = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs", "Cc", "Cf")), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(
    [
        "type", "subject", "template", "data", "channels", "expires_at", "not_before", "category", "metadata", "stake", "key",
        "recipient", "other",
    ]
)  # fmt: skip
GOOD_VALUES = st.sampled_from(
    [
        {"data": None},
        {"data": {"class": "two\nlines", "n": 1, "x": 0.5, "b": True}},
        {"metadata": {"a": "b"}},
        {"stake": {"count": 0, "unit": "seat"}},
        {"expires_at": "2036-12-01T18:00:00.5+02:00"},
        {"category": "marketing"},
        {"key": '"' + "k" * 255 + '"'},
        {"channels": ["sms"]},
        {"template": "a@1"},
        {"recipient": {"ref": "m-1"}},
        {"recipient": {"ref": "é", "sms": "+1 201 555 0123", "locale": None, "time_zone": "Europe/Kyiv"}},
    ]
)


def document_of(client: FlaskClient) -> dict[str, Any]:
    return body_of(client.get("/openapi.json"))


def validator_of(document: dict[str, Any]) -> jsonschema_rs.Validator:
    """Make a validator of the published schema of an event."""
    schema = {"$ref": "#/components/schemas/EventRequest", "components": document["components"]}
    return jsonschema_rs.Draft202012Validator(schema)


def refused_by_schema(client: FlaskClient, event: object) -> bool:
    return not validator_of(document_of(client)).is_valid(event)


def test_the_document_is_openapi_3_1_and_names_every_operation(web_app: Flask, client: FlaskClient) -> None:
    document = document_of(client)

    schema = schemathesis.openapi.from_dict(document)
    schema.validate()

    assert document["openapi"] == "3.1.0"
    described = {
        (method, path) for path, item in document["paths"].items() for method in item if method in {"get", "post", "put"}
    }
    routed = {
        (method.lower(), rule.rule.replace("<uuid:", "{").replace("<", "{").replace(">", "}"))
        for rule in web_app.url_map.iter_rules()
        for method in rule.methods or ()
        if method in {"GET", "POST", "PUT"} and rule.rule not in {"/docs", "/openapi.json"}
    }
    assert described == routed


def test_an_operation_says_which_scope_it_needs(client: FlaskClient) -> None:
    paths = document_of(client)["paths"]

    assert paths["/v1/events"]["post"]["security"] == [{"key": ["events:write"]}]
    assert paths["/health/live"]["get"]["security"] == []


def test_two_apps_publish_the_same_document(client: FlaskClient) -> None:
    assert document_of(create_app().test_client()) == document_of(client)


def test_the_page_shows_every_operation_and_problem_and_loads_nothing(client: FlaskClient) -> None:
    answer = client.get("/docs")

    page = answer.get_data(as_text=True)
    assert answer.mimetype == "text/html"
    assert all(path in page for path in document_of(client)["paths"])
    assert all(f'id="{code}"' in page for code in PROBLEMS)
    assert "<script" not in page
    assert "src=" not in page
    assert "'unsafe" not in answer.headers["Content-Security-Policy"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=GOOD_VALUES | st.dictionaries(FIELDS, JSON, max_size=2))
def test_what_the_schema_refuses_the_reader_refuses(client: FlaskClient, changes: dict[str, Any]) -> None:
    """The schema may be laxer (it knows no telephone plan), never stricter than what is taken."""
    event = ask() | changes

    taken = isinstance(read_request(event), NewEvent)

    assert not (taken and refused_by_schema(client, event)), event


@pytest.mark.parametrize(
    "changes",
    [
        {"other": 1},
        {"type": ""},
        {"type": "x" * 201},
        {"type": "a\x00"},
        {"channels": []},
        {"channels": ["sms", "sms"]},
        {"data": {"a": []}},
        {"data": {"a": "x" * 1001}},
        {"data": {str(n): n for n in range(21)}},
        {"data": {"": 1}},
        {"metadata": {"a": 1}},
        {"stake": {"count": 1}},
        {"category": "party"},
        {"key": "k" * 258},
        {"template": "A"},
        {"recipient": {}},
    ],
)
def test_the_schema_refuses_what_the_reader_would_refuse_by_shape(client: FlaskClient, changes: dict[str, Any]) -> None:
    event = ask() | changes

    assert refused_by_schema(client, event)
    assert not isinstance(read_request(event), NewEvent)


# Made at import, since there is one test per operation; the app asks for no server until it is called.
described = schemathesis.openapi.from_wsgi("/openapi.json", create_app())


generated = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@described.exclude(path=BATCH).parametrize()
@generated
def test_generated_calls_are_answered_as_documented(case: schemathesis.Case[Any], api: Api) -> None:
    """No 5xx, no undocumented status, no body that the document does not describe, nothing taken that it forbids."""
    case.call_and_validate(headers={"Authorization": f"Bearer {api.key}"}, checks=[*CHECKS, negative_data_rejection])


@described.include(path=BATCH).parametrize()
@generated
def test_generated_batches_are_answered_as_documented(case: schemathesis.Case[Any], api: Api) -> None:
    """A bad item is refused in its place, so the batch itself is taken."""
    case.call_and_validate(headers={"Authorization": f"Bearer {api.key}"}, checks=CHECKS)
