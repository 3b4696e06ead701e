"""Take what somebody wrote: verify the call, keep it, then act on it; two transactions, so that keeping never waits."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.carriers.base import Call, Silence
from app.carriers.registry import open_carrier
from app.flows.receipts import Taken
from app.flows.routes import find_route
from app.ground.db import CommitUnknown, DatabaseAway, Raced, transact
from app.ground.log import log
from app.ledger.confirm import Confirmation
from app.ledger.inbound import TEXT_REFUSED, Acted, Kept, act_on, keep_text
from app.ledger.receipts import keep_refused
from app.ledger.routes import Route


@dataclass(frozen=True, slots=True)
class Received:
    """What became of a call, and what to answer it."""

    taken: Taken
    silence: Silence | None = None
    confirms: bool = False
    """A confirmation is due."""


def take_inbound(route_id: UUID, call: Call) -> Received:
    """Take one call that hands over a text. What is verified is kept before anything is made of it."""
    route = find_route(route_id)
    if route is None:
        return Received(Taken.NO_ROUTE)
    carrier = open_carrier(route.settings)
    if not carrier.is_authentic(call, url=route.settings.inbound_url):
        transact(lambda tx: keep_refused(tx.session, route, call, cause=TEXT_REFUSED, now=tx.now))
        log.warning("inbound_refused", route_id=str(route_id))
        return Received(Taken.REFUSED)
    kept = transact(lambda tx: keep_text(tx.session, route, call, now=tx.now))
    log.info("inbound", inbound_id=str(kept.id), word=kept.word, status=kept.status, duplicate=kept.duplicate)
    acted = _act_at_once(kept, route) if kept.status == "waiting" else None
    confirms = acted is not None and acted.confirmation is Confirmation.ACCEPTED
    return Received(Taken.KEPT, carrier.silence, confirms=confirms)


def _act_at_once(kept: Kept, route: Route) -> Acted | None:
    try:
        return act(kept.id, route)
    except (DatabaseAway, CommitUnknown, Raced, DBAPIError, PsycopgError) as error:
        # It is kept, and that is what the carrier is told; reconcile acts on what is waiting.
        log.error("inbound_not_acted_on", inbound_id=str(kept.id), cause=type(error).__name__)
        return None


def act(inbound_id: UUID, route: Route) -> Acted | None:
    """Act on a kept text in one transaction, and say in the log what was done."""
    acted = transact(lambda tx: act_on(tx.session, inbound_id, route=route, now=tx.now))
    if acted is not None:
        log.info("inbound_acted_on", inbound_id=str(inbound_id), word=acted.word, confirmation=acted.confirmation)
        if acted.carrier_may_block:
            log.warning("carrier_may_still_block", inbound_id=str(inbound_id), route_id=str(route.id))
    return acted
