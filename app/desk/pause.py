"""The operator's brake: pause a tenant, a route, a lane, a category or a country, and let go again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.ground.db import insertion, rows, run_together
from app.ground.errors import DaybookError
from app.ground.ids import new_id
from app.ledger.spend import let_pass
from models.rules import Pause

ROUTE = "SELECT id FROM route WHERE tenant_id = %(tenant)s AND name = %(name)s"

RUNNING = """
SELECT p.id, r.name AS route, p.lane, p.category, p.country, p.cause, p.started_by, p.started_at
FROM pause p LEFT JOIN route r ON r.id = p.route_id
WHERE p.tenant_id = %(tenant)s AND p.ended_at IS NULL ORDER BY p.started_at
"""

END = """
UPDATE pause SET ended_at = %(now)s, ended_by = %(actor)s
WHERE tenant_id = %(tenant)s AND ended_at IS NULL AND route_id IS NOT DISTINCT FROM %(route)s
  AND lane IS NOT DISTINCT FROM %(lane)s AND category IS NOT DISTINCT FROM %(category)s
  AND country IS NOT DISTINCT FROM %(country)s
RETURNING id
"""


LOWER_FLOORS = "DELETE FROM dispatch_floor"


class NoSuchRoute(DaybookError):
    """The tenant has no route of this name."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a pause holds; nothing named means everything of the tenant."""

    route: str | None = None
    lane: str | None = None
    category: str | None = None
    country: str | None = None
    """ISO 3166-1 alpha-2, of the numbers."""


def pause(session: Session, *, tenant_id: UUID, scope: Scope, actor: str, reason: str, now: datetime) -> UUID:
    """Put the brake on. What is prepared already goes on: policy and pauses are judged at `prepared`."""
    route_id = _route(session, tenant_id, scope)
    pause_id = new_id()
    row = {
        "id": pause_id,
        "tenant_id": tenant_id,
        "route_id": route_id,
        "lane": scope.lane,
        "category": scope.category,
        "country": scope.country,
        "cause": reason,
        "started_by": actor,
        "started_at": now,
        "ended_by": None,
        "ended_at": None,
    }
    run_together(session, [insertion(Pause, [row])])
    record_action(session, tenant_id=tenant_id, actor=actor, verb="pause", subject=_subject(scope), reason=reason, now=now)
    return pause_id


def resume(session: Session, *, tenant_id: UUID, scope: Scope, actor: str, reason: str, now: datetime) -> int:
    """Let the brake go on exactly this scope; return how many pauses ended."""
    route_id = _route(session, tenant_id, scope)
    exactly = {"lane": scope.lane, "category": scope.category, "country": scope.country}
    ended = rows(session, END, tenant=tenant_id, route=route_id, **exactly, actor=actor, now=now)
    if ended:
        if route_id is not None and scope.country is not None:
            let_pass(session, tenant_id=tenant_id, route_id=route_id, country=scope.country, now=now)
        rows(session, LOWER_FLOORS)  # what was held back lies below the marks of what went on
        record_action(session, tenant_id=tenant_id, actor=actor, verb="resume", subject=_subject(scope), reason=reason, now=now)
    return len(ended)


def running_pauses(session: Session, *, tenant_id: UUID) -> list[Any]:
    """List what is paused."""
    return rows(session, RUNNING, tenant=tenant_id)


def _route(session: Session, tenant_id: UUID, scope: Scope) -> UUID | None:
    return None if scope.route is None else get_route(session, tenant_id, scope.route)


def get_route(session: Session, tenant_id: UUID, name: str) -> UUID:
    """Name a tenant's route by its id; NoSuchRoute when it has none of this name."""
    found = rows(session, ROUTE, tenant=tenant_id, name=name)
    if not found:
        raise NoSuchRoute(f"there is no route named {name!r}")
    route_id: UUID = found[0].id
    return route_id


def _subject(scope: Scope) -> dict[str, str | None]:
    return {"route": scope.route, "lane": scope.lane, "category": scope.category, "country": scope.country}
