"""Pauses: the operator's brake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from flask_smorest import Blueprint

from app.desk.pause import Scope, pause, resume, running_pauses
from app.ground.db import Tx
from policy.words import Lane
from tasks.doorbell import ring
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.reading import later, read_body
from web.schemas.pauses import PausedSchema, PausesSchema, ResumedSchema, ScopeSchema

blueprint = Blueprint("pauses", __name__, description="Hold a route, a lane, a category, a country or everything; let go again.")

CODES: Final = ("invalid_field", "unknown_field", "invalid_request", "unknown_route")
GET: Final = Operation(answers={200: PausesSchema}, scope="operator")
PAUSE: Final = Operation(answers={201: PausedSchema}, scope="operator", codes=CODES, body=ScopeSchema, methods=("POST",))
RESUME: Final = Operation(answers={200: ResumedSchema}, scope="operator", codes=CODES, body=ScopeSchema, methods=("POST",))


@operation(blueprint, "/v1/pauses", GET)
def get_pauses() -> object:
    """List what is paused."""
    return {"items": as_caller(GET.scope, lambda tx, c: running_pauses(tx.session, tenant_id=c.tenant_id))}


@operation(blueprint, "/v1/pauses", PAUSE)
def post_pause() -> object:
    """Put the brake on; what is prepared already goes on."""
    asked = later(lambda: read_body(ScopeSchema()))
    return {"id": as_caller(PAUSE.scope, lambda tx, caller: _pause(tx, caller, asked()))}


@operation(blueprint, "/v1/pauses/resume", RESUME)
def post_resume() -> object:
    """Let the brake go on exactly this scope."""
    asked = later(lambda: read_body(ScopeSchema()))
    ended = as_caller(RESUME.scope, lambda tx, caller: _resume(tx, caller, asked()))
    for lane in Lane if ended else ():
        ring(lane)
    return {"ended": ended}


def _pause(tx: Tx, caller: Caller, asked: Mapping[str, Any]) -> UUID:
    return pause(
        tx.session, tenant_id=caller.tenant_id, scope=_scope(asked), actor=caller.actor, reason=asked["reason"], now=tx.now
    )


def _resume(tx: Tx, caller: Caller, asked: Mapping[str, Any]) -> int:
    return resume(
        tx.session, tenant_id=caller.tenant_id, scope=_scope(asked), actor=caller.actor, reason=asked["reason"], now=tx.now
    )


def _scope(asked: Mapping[str, Any]) -> Scope:
    return Scope(route=asked.get("route"), lane=asked.get("lane"), category=asked.get("category"), country=asked.get("country"))
