"""Health: whether the process answers, and whether what it needs answers too."""

from __future__ import annotations

from typing import Final

from flask_smorest import Blueprint

from app.flows.readiness import find_unready
from app.ledger.request import Problem
from web.describe import Operation, operation
from web.problems import Refusal
from web.schemas.health import LiveSchema, ReadySchema

blueprint = Blueprint("health", __name__, description="For load balancers and supervisors.")

LIVE: Final = Operation(answers={200: LiveSchema}, needs_key=False)
READY: Final = Operation(answers={200: ReadySchema}, needs_key=False, codes=("not_ready",))


@operation(blueprint, "/health/live", LIVE)
def get_live() -> object:
    """Say that the process answers; the database is not asked."""
    return {}


@operation(blueprint, "/health/ready", READY)
def get_ready() -> object:
    """Say whether database, migrations and Redis are ready, and which is not."""
    unready = find_unready()
    if unready:
        detail = ", ".join(unready)
        raise Refusal("not_ready", f"not ready: {detail}", errors=[Problem("not_ready", part) for part in unready])
    return {}
