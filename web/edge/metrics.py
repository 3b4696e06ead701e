"""Metrics: the state of the books for Prometheus, which sends its key as any caller does."""

from __future__ import annotations

from typing import Final

from flask import Response
from flask_smorest import Blueprint

from app.ledger.metrics import CONTENT_TYPE, render_metrics
from web.auth import as_caller
from web.describe import Operation, operation

blueprint = Blueprint("metrics", __name__, description="For Prometheus.")

GET: Final = Operation(answers={200: "Metrics in Prometheus's text format."}, scope="operator")


@operation(blueprint, "/metrics", GET)
def get_metrics() -> object:
    """Give the state of the books of every tenant, in figures and names of routes."""
    as_caller(GET.scope, lambda _tx, caller: caller)
    return Response(render_metrics(), content_type=CONTENT_TYPE)
