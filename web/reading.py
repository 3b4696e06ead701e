"""Read what a request brings: bounded bodies, strict JSON, queries; each mistake with its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import orjson
from flask import request
from marshmallow import Schema, ValidationError
from werkzeug.exceptions import RequestEntityTooLarge

from app.ledger.request import Problem
from web.problems import Refusal, refusal_of

T = TypeVar("T")

KIB: Final = 1024
EVENT_BYTES: Final = 64 * KIB
BATCH_BYTES: Final = 5 * KIB * KIB
RECEIPT_BYTES: Final = 64 * KIB


def later(read: Callable[[], T]) -> Callable[[], T]:
    """Read now, tell later: no transaction waits for a body, and whoever may not ask is told that first."""
    try:
        value = read()
    except Refusal as refusal:
        return _refusing(refusal)
    return lambda: value


def _refusing(refusal: Refusal) -> Callable[[], Any]:
    def refuse() -> Any:  # noqa: ANN401 - it never returns
        raise refusal

    return refuse


def read_bytes(limit: int) -> bytes:
    """Read the raw body up to a limit, before anything else parses it."""
    # One more than is taken: a body that comes in chunks is cut off at the maximum, not refused.
    request.max_content_length = limit + 1
    try:
        body = request.get_data(cache=True)
    except RequestEntityTooLarge as error:
        raise _too_large(limit) from error
    if len(body) > limit:
        raise _too_large(limit)
    return body


def _too_large(limit: int) -> Refusal:
    return Refusal("too_large", f"at most {limit} bytes are taken here")


def read_json(limit: int) -> object:
    """Read the body as one JSON document; a name given twice is refused, since readers disagree on which counts."""
    if request.mimetype != "application/json":
        raise Refusal("unsupported_media_type")
    body = read_bytes(limit)
    try:
        read: object = orjson.loads(body)
        # orjson is strict about all but repeated names, of which it silently takes the last.
        json.loads(body, object_pairs_hook=_once)
    except (orjson.JSONDecodeError, _NamedTwice, RecursionError) as error:
        detail = "an object gives the same name twice" if isinstance(error, _NamedTwice) else ""
        raise Refusal("malformed_json", detail) from error
    return read


class _NamedTwice(ValueError):
    """An object gives the same name twice."""


def _once(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise _NamedTwice


def read_body(schema: Schema, *, limit: int = EVENT_BYTES) -> dict[str, Any]:
    """Read a JSON body by its schema."""
    raw = read_json(limit)
    if not isinstance(raw, dict):
        raise refusal_of([Problem("invalid_field", "must be an object")])
    return _load(schema, raw, mark="/")


def read_query(schema: Schema) -> dict[str, Any]:
    """Read the query by its schema; a name that is unknown or given twice is refused rather than ignored."""
    twice = [name for name, values in request.args.lists() if len(values) > 1]
    if twice:
        raise refusal_of([Problem("invalid_field", "must be given once", f"?{name}") for name in twice])
    return _load(schema, request.args.to_dict(), mark="?")


def _load(schema: Schema, raw: Mapping[str, Any], *, mark: str) -> dict[str, Any]:
    try:
        loaded: dict[str, Any] = schema.load(raw)
    except ValidationError as error:
        known = {field.data_key or name for name, field in schema.fields.items()}
        mistakes = [
            Problem("invalid_field" if name in known else "unknown_field", " ".join(map(str, texts)), f"{mark}{name}")
            for name, texts in sorted(error.normalized_messages().items())  # type: ignore[no-untyped-call]  # marshmallow left it so
        ]
        raise refusal_of(mistakes) from error
    return loaded
