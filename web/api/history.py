"""History: what changed and when, by a cursor that skips nothing."""

from __future__ import annotations

import hashlib
import random
from typing import Any, Final

import orjson
from flask import jsonify, request
from flask_smorest import Blueprint
from werkzeug import Response

from app.ground.db import Tx, transact
from app.ledger.feed import HistoryPage, read_history, sequence
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.reading import later, read_query
from web.schemas.history import HistoryQuerySchema, HistorySchema

blueprint = Blueprint("history", __name__, description="What changed, and when.")

# Clients that started together must not go on asking together.
POLL_SECONDS: Final = (4.0, 6.0)

GET: Final = Operation(
    answers={200: HistorySchema, 304: "Nothing new under this ETag."},
    scope="history:read",
    codes=("unknown_cursor", "invalid_field", "unknown_field", "invalid_request"),
    query=HistoryQuerySchema,
    headers=("If-None-Match",),
)


@operation(blueprint, "/v1/history", GET)
def get_history() -> object:
    """Read the tenant's history after a cursor, of one recipient or one event if named."""
    asked = later(lambda: read_query(HistoryQuerySchema()))
    caller, query = as_caller(GET.scope, lambda tx, caller: (_put_in_order(tx, caller), asked()))
    document = transact(lambda tx: _document(tx, caller, query))
    return _answer(document)


def _put_in_order(tx: Tx, caller: Caller) -> Caller:
    # Another sequencer at work is no error: what it puts in order, the next page shows.
    sequence(tx.session)
    return caller


def _document(tx: Tx, caller: Caller, query: dict[str, Any]) -> dict[str, Any]:
    page: HistoryPage = read_history(
        tx.session,
        tenant_id=caller.tenant_id,
        after=query["after"],
        limit=query["limit"],
        recipient=query["recipient"],
        event_id=query["event"],
    )
    dumped: dict[str, Any] = HistorySchema().dump(
        {
            "items": page.items,
            "next_cursor": page.next_cursor,
            "has_more": page.has_more,
            "complete_until": page.complete_until,
            "server_time": tx.now,
            "poll_after_seconds": 0 if page.has_more else round(random.uniform(*POLL_SECONDS), 1),  # noqa: S311 - spreads clients
        }
    )
    return dumped


def _answer(document: dict[str, Any]) -> Response:
    # The tag covers items and cursor alone: the clock moves on in every answer. So it is a weak one.
    told = orjson.dumps([document["items"], document["next_cursor"]])
    answer = jsonify(document)
    answer.set_etag(hashlib.sha256(told).hexdigest()[:32], weak=True)
    answer.headers["Cache-Control"] = "private, no-cache"
    answer.vary.add("Authorization")
    return answer.make_conditional(request)
