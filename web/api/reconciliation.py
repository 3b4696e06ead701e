"""Reconciliation: where the books wait for, or contradict, what others say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from flask_smorest import Blueprint

from app.ground.db import Tx
from app.ledger.reconciliation import SHOWN_FOR, Summary, View, read_view, summarise
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.problems import Refusal
from web.reading import later, read_query
from web.schemas.reconciliation import SinceQuerySchema, SummariesSchema, ViewQuerySchema, ViewSchema

blueprint = Blueprint("reconciliation", __name__, description="Where the books wait for, or contradict, what others say.")

MISTAKES: Final = ("invalid_field", "unknown_field", "invalid_request")
LIST: Final = Operation(answers={200: SummariesSchema}, scope="operator", codes=MISTAKES, query=SinceQuerySchema)
GET: Final = Operation(answers={200: ViewSchema}, scope="operator", codes=(*MISTAKES, "not_found"), query=ViewQuerySchema)


@operation(blueprint, "/v1/reconciliation", LIST)
def get_summaries() -> object:
    """Count what every view holds, with the oldest's age and what is at stake."""
    asked = later(lambda: read_query(SinceQuerySchema()))
    return {"items": as_caller(LIST.scope, lambda tx, caller: _summarise(tx, caller, [*View], asked()))}


@operation(blueprint, "/v1/reconciliation/<view>", GET)
def get_view(view: str) -> object:
    """Read one view by pages."""
    asked = later(lambda: read_query(ViewQuerySchema()))
    return as_caller(GET.scope, lambda tx, caller: _read(tx, caller, view, asked()))


def _summarise(tx: Tx, caller: Caller, views: list[View], query: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = summarise(tx.session, views, tenant_id=caller.tenant_id, since=_since(tx, query), now=tx.now)
    return [_document(summary) for summary in found]


def _read(tx: Tx, caller: Caller, name: str, query: Mapping[str, Any]) -> dict[str, Any]:
    if name not in {*View}:
        raise Refusal("not_found", f"the views are {', '.join(View)}")
    view, limit = View(name), query["limit"]
    (summary,) = _summarise(tx, caller, [view], query)
    found = read_view(
        tx.session,
        view,
        tenant_id=caller.tenant_id,
        since=_since(tx, query),
        after=query["after"],
        limit=limit + 1,
        now=tx.now,
    )
    return summary | {"items": found[:limit], "next_cursor": found[limit - 1].id if len(found) > limit else None}


def _since(tx: Tx, query: Mapping[str, Any]) -> datetime:
    since: datetime | None = query["since"]
    return since or tx.now - SHOWN_FOR


def _document(summary: Summary) -> dict[str, Any]:
    return asdict(summary) | {"meaning": summary.view.words}
