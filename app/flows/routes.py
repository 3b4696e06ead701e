"""A route by its id, from the database only the first time: routes never change."""

from __future__ import annotations

from uuid import UUID

from app.ground.db import transact
from app.ledger.routes import Route, known_route, read_routes


def find_route(route_id: UUID) -> Route | None:
    """Find a route; a transaction is opened only for one that this process has not met."""
    return known_route(route_id) or transact(lambda tx: read_routes(tx.session, [route_id])).get(route_id)
