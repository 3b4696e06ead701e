"""Describe operations: one decorator that registers a handler, dumps what it returns and writes its OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from flask_smorest import Blueprint
from marshmallow import Schema

from web.problems import MEDIA_TYPE, PROBLEMS
from web.schemas.problems import ProblemSchema

Handler = TypeVar("Handler", bound=Callable[..., object])

ANYWHERE: Final = ("bad_request", "internal")
WITH_KEY: Final = ("unauthorized", "scope_missing", "database_away", "busy")
WITH_BODY: Final = ("malformed_json", "too_large", "unsupported_media_type")


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as it is published."""

    answers: Mapping[int, type[Schema] | str]
    """status -> the schema that its body has, or its words where it has none of ours."""
    scope: str | None = None
    needs_key: bool = True
    codes: Sequence[str] = ()
    """Problems of its own, beside those that any of its kind may have."""
    body: type[Schema] | None = None
    query: type[Schema] | None = None
    headers: Sequence[str] = ()
    methods: Sequence[str] = field(default=("GET",))


def operation(blueprint: Blueprint, rule: str, described: Operation) -> Callable[[Handler], Handler]:
    """Register a handler under a rule; it returns an object for the first answer's schema, or a finished response."""
    status, schema = next(iter(described.answers.items()))

    def register(handler: Handler) -> Handler:
        documented = blueprint.doc(**_document(described))(handler)
        answering = blueprint.response(status, None if isinstance(schema, str) else schema)(documented)
        return cast("Handler", blueprint.route(rule, methods=list(described.methods))(answering))

    return register


def _document(described: Operation) -> dict[str, Any]:
    document: dict[str, Any] = {"responses": _responses(described), "security": _security(described)}
    parameters: list[dict[str, Any]] = [
        {"in": "header", "name": name, "required": False, "schema": {"type": "string"}} for name in described.headers
    ]
    if described.query:
        parameters.append({"in": "query", "schema": described.query})
    if parameters:
        document["parameters"] = parameters
    if described.body:
        document["requestBody"] = {"required": True, "content": {"application/json": {"schema": described.body}}}
    return document


def _security(described: Operation) -> list[dict[str, list[str]]]:
    if not described.needs_key:
        return []
    return [{"key": [described.scope] if described.scope else []}]


def _responses(described: Operation) -> dict[str, Any]:
    responses = {str(status): _answer(schema) for status, schema in described.answers.items()}
    codes = [*ANYWHERE, *described.codes]
    codes += WITH_KEY if described.needs_key else ()
    codes += WITH_BODY if described.body else ()
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(PROBLEMS[code].status, []).append(code)
    for status, meant in sorted(by_status.items()):
        description = "Problem: " + ", ".join(sorted(meant))
        responses[str(status)] = {"description": description, "content": {MEDIA_TYPE: {"schema": ProblemSchema}}}
    return responses


def _answer(schema: type[Schema] | str) -> dict[str, Any]:
    if isinstance(schema, str):
        return {"description": schema}
    return {"description": (schema.__doc__ or "").strip(), "content": {"application/json": {"schema": schema}}}
