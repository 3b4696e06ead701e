"""Cancellations: the seat is filled, and whoever still waits to hear of it is not to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final
from uuid import UUID

from flask import request
from flask_smorest import Blueprint

from app.desk.cancellation import Begun, begin_cancellation, cancel_occasion, occasion_of, read_cancellation
from app.ground.db import Tx, transact
from app.ledger.request import LOOKS_PERSONAL, Problem, read_key
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.problems import refusal_of
from web.reading import BATCH_BYTES, later, read_body, read_query
from web.schemas.cancellations import (
    PAGE_MAX,
    CancellationQuerySchema,
    CancellationRequestSchema,
    CancellationSchema,
    CancelledOccasionSchema,
)

blueprint = Blueprint("cancellations", __name__, description="Call a whole occasion off.")

CREATED: Final = 201
REPEATED: Final = 200
KEY_HEADER: Final = "Idempotency-Key"

POST: Final = Operation(
    answers={CREATED: CancelledOccasionSchema, REPEATED: CancelledOccasionSchema},
    scope="events:write",
    codes=("invalid_field", "unknown_field", "invalid_request", "invalid_key", "personal_value", "key_reused"),
    body=CancellationRequestSchema,
    headers=(KEY_HEADER,),
    methods=("POST",),
)
GET: Final = Operation(
    answers={200: CancellationSchema},
    scope="events:read",
    codes=("not_found", "unknown_cursor", "invalid_field", "unknown_field", "invalid_request"),
    query=CancellationQuerySchema,
)


@operation(blueprint, "/v1/cancellations", POST)
def post_cancellation() -> object:
    """Cancel everything of a type and subject that has not left, and say what had: one cut, before or after any acceptance."""
    asked = later(_read_cancellation)
    begun = as_caller(POST.scope, lambda tx, caller: _begin(tx, caller, *asked()))
    cancel_occasion(begun)
    view = transact(
        lambda tx: read_cancellation(tx.session, tenant_id=begun.tenant_id, cancellation_id=begun.id, after=None, limit=PAGE_MAX)
    )
    return asdict(view) | {"duplicate": begun.duplicate}, REPEATED if begun.duplicate else CREATED


@operation(blueprint, "/v1/cancellations/<uuid:cancellation_id>", GET)
def get_cancellation(cancellation_id: UUID) -> object:
    """See what a cancellation found, and page by page what had been handed off."""
    asked = later(lambda: read_query(CancellationQuerySchema()))
    return as_caller(
        GET.scope,
        lambda tx, c: read_cancellation(tx.session, tenant_id=c.tenant_id, cancellation_id=cancellation_id, **asked()),
    )


def _read_cancellation() -> tuple[Mapping[str, Any], str | None]:
    body = read_body(CancellationRequestSchema(), limit=BATCH_BYTES)
    header = request.headers.get(KEY_HEADER)
    key = None if header is None else read_key(header)
    mistakes = []
    if header is not None and key is None:
        mistakes.append(Problem("invalid_key", "must be 1 to 255 printable ASCII characters", f"#{KEY_HEADER}"))
    written = {"/type": body["type"], "/subject": body["subject"], "/reason": body["reason"], f"#{KEY_HEADER}": key or ""}
    written |= {f"/except/{n}": ref for n, ref in enumerate(body["except_"])}
    mistakes += [
        Problem("personal_value", "must not hold an address: it is kept in clear", place)
        for place, value in written.items()
        if LOOKS_PERSONAL.search(value)
    ]
    if mistakes:
        raise refusal_of(mistakes)
    return body, key


def _begin(tx: Tx, caller: Caller, asked: Mapping[str, Any], key: str | None) -> Begun:
    return begin_cancellation(
        tx.session,
        tenant_id=caller.tenant_id,
        asked=occasion_of(asked["type"], asked["subject"], asked["except_"]),
        reason=asked["reason"],
        actor=caller.actor,
        key=key,
        now=tx.now,
    )
