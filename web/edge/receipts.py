"""Receipts: what carriers call. The call goes on exactly as it came; the status says whether to repeat it."""

from __future__ import annotations

from typing import Final, assert_never
from uuid import UUID

from flask import Response, request
from flask_smorest import Blueprint

from app.carriers.base import Call
from app.flows.receipts import Taken, take_receipt
from web.describe import Operation, operation
from web.problems import Refusal
from web.reading import RECEIPT_BYTES, read_bytes

blueprint = Blueprint("receipts", __name__, description="Where carriers tell what became of a message.")

TAKE: Final = Operation(
    answers={200: "Kept."},
    needs_key=False,
    codes=("not_found", "not_authentic", "too_large", "database_away", "busy"),
    methods=("GET", "POST"),
)


@operation(blueprint, "/v1/receipts/<uuid:route_id>", TAKE)
def take(route_id: UUID) -> object:
    """Take a carrier's call on a route."""
    # The body first: once something has parsed a form, the bytes that were signed are gone.
    body = read_bytes(RECEIPT_BYTES)
    taken = take_receipt(route_id, Call(request.method, request.query_string, dict(request.headers), body))
    match taken:
        case Taken.KEPT:
            return Response("kept\n", status=200, mimetype="text/plain")  # Kannel takes 200 and 202 alone for success
        case Taken.REFUSED:
            raise Refusal("not_authentic")
        case Taken.NO_ROUTE:
            raise Refusal("not_found")
        case _:
            assert_never(taken)
