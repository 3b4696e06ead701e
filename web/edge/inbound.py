"""Inbound: where carriers hand over what people write. The answer says that we have it, and texts nobody back."""

from __future__ import annotations

from typing import Final, assert_never
from uuid import UUID

from flask import Response, request
from flask_smorest import Blueprint

from app.carriers.base import Call
from app.flows.inbound import take_inbound
from app.flows.receipts import Taken
from policy.words import Lane
from tasks.doorbell import ring
from web.describe import Operation, operation
from web.problems import Refusal
from web.reading import RECEIPT_BYTES, read_bytes

blueprint = Blueprint("inbound_calls", __name__, description="Where carriers hand over what people write.")

TAKE: Final = Operation(
    answers={200: "Kept."},
    needs_key=False,
    codes=("not_found", "not_authentic", "too_large", "database_away", "busy"),
    methods=("GET", "POST"),
)


@operation(blueprint, "/v1/inbound/<uuid:route_id>", TAKE)
def take(route_id: UUID) -> object:
    """Take a text that somebody wrote to a number of a route."""
    body = read_bytes(RECEIPT_BYTES)  # first, as receipts are: what was signed are these bytes
    received = take_inbound(route_id, Call(request.method, request.query_string, dict(request.headers), body))
    match received.taken:
        case Taken.KEPT:
            if received.confirms:
                ring(Lane.URGENT)
            silence = received.silence
            return Response(silence.body if silence else b"", status=200, mimetype=silence.mimetype if silence else "text/plain")
        case Taken.REFUSED:
            raise Refusal("not_authentic")
        case Taken.NO_ROUTE:
            raise Refusal("not_found")
        case _:
            assert_never(received.taken)
