"""Take a carrier's call: verify it, keep it, then observe it; two transactions, so that keeping never waits."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from uuid import UUID

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.carriers.base import Call
from app.carriers.registry import open_carrier
from app.flows.keep import POISON
from app.flows.routes import find_route
from app.ground.db import CommitUnknown, DatabaseAway, Tx, transact
from app.ground.log import log
from app.ledger.observe import Told, observe
from app.ledger.receipts import keep_call, keep_refused, mark_observed


class Taken(StrEnum):
    """What became of a call; the edge chooses the status code."""

    KEPT = "kept"
    REFUSED = "refused"
    NO_ROUTE = "no_route"


def take_receipt(route_id: UUID, call: Call) -> Taken:
    """Take one call on a route. What is verified is kept before anything is made of it."""
    route = find_route(route_id)
    if route is None:
        return Taken.NO_ROUTE
    carrier = open_carrier(route.settings)
    if not carrier.is_authentic(call):
        transact(lambda tx: keep_refused(tx.session, route, call, cause="not_authentic", now=tx.now))
        log.warning("receipt_refused", route_id=str(route_id))
        return Taken.REFUSED
    kept = transact(lambda tx: keep_call(tx.session, route, call, now=tx.now))
    log.info("receipt", receipt_id=str(kept.id), route_id=str(route_id), status=kept.status, duplicate=kept.duplicate)
    if kept.told:
        try:
            transact(lambda tx: observe_receipt(tx, kept.id, kept.told))
        except (*POISON, DatabaseAway, CommitUnknown, DBAPIError, PsycopgError) as error:
            # It is kept, and that is what the carrier is told; reconcile observes what is waiting.
            log.error("receipt_not_observed", receipt_id=str(kept.id), cause=type(error).__name__)
    return Taken.KEPT


def observe_receipt(tx: Tx, receipt_id: UUID, told: Sequence[Told]) -> None:
    """Observe a kept receipt and mark it so, in one transaction."""
    observe(tx.session, told, now=tx.now)
    mark_observed(tx.session, [receipt_id], now=tx.now)
