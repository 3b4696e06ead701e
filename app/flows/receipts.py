"""Take a carrier's call: verify it, keep it, then observe it; two transactions: what is kept stays, whatever observing meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final
from uuid import UUID

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.carriers.base import Call
from app.carriers.registry import open_carrier
from app.flows.keep import POISON
from app.flows.routes import find_route
from app.flows.together import Together
from app.ground.db import CommitUnknown, DatabaseAway, Tx, transact
from app.ground.ids import ReceiptId
from app.ground.log import log
from app.ledger.observe import observe, observe_free
from app.ledger.receipts import Incoming, Kept, keep_receipts, keep_refused, mark_observed, read_call
from app.ledger.routes import Route

UNOBSERVABLE: Final = (*POISON, DatabaseAway, CommitUnknown, DBAPIError, PsycopgError)


class Taken(StrEnum):
    """What became of a call; the edge chooses the status code."""

    KEPT = "kept"
    REFUSED = "refused"
    NO_ROUTE = "no_route"


@dataclass(frozen=True, slots=True)
class _Asked:
    """A verified call on its way into the books."""

    route: Route
    incoming: Incoming


def take_receipt(route_id: UUID, call: Call) -> Taken:
    """Take one call on a route. What is verified is kept before anything is made of it."""
    route = find_route(route_id)
    if route is None:
        return Taken.NO_ROUTE
    if not open_carrier(route.settings).is_authentic(call):
        transact(lambda tx: keep_refused(tx.session, route, call, cause="not_authentic", now=tx.now))
        log.warning("receipt_refused", route_id=str(route_id))
        return Taken.REFUSED
    kept, is_observed = TOGETHER.ask(route.id, _Asked(route, read_call(route, call)))
    log.info("receipt", receipt_id=str(kept.id), route_id=str(route_id), status=kept.status, duplicate=kept.duplicate)
    if kept.told and not is_observed:
        try:
            observe_alone(kept)  # one that waits for a lock must not hold the others: it waits alone
        except UNOBSERVABLE as error:
            # It is kept, and that is what the carrier is told; reconcile observes what is waiting.
            log.error("receipt_not_observed", receipt_id=str(kept.id), cause=type(error).__name__)
    return Taken.KEPT


def observe_page(page: Sequence[Kept]) -> list[bool]:
    """Observe kept receipts in one transaction, but for those that would have to wait for a lock; say which were."""
    observed = transact(partial(_observe_free, page=page))
    return [kept.id in observed for kept in page]


def observe_alone(kept: Kept) -> None:
    """Observe one kept receipt, waiting for whoever writes about its attempt."""
    transact(lambda tx: _observe(tx, kept))


def _keep(tx: Tx, *, page: Sequence[_Asked]) -> list[Kept]:
    return keep_receipts(tx.session, page[0].route, [asked.incoming for asked in page], now=tx.now)


def _take_page(page: Sequence[_Asked]) -> list[tuple[Kept, bool]]:
    """Keep a page, then observe what of it can be without waiting for a lock; say which was."""
    kept = transact(partial(_keep, page=page))
    waiting = [each for each in kept if each.told]
    try:
        observed = {each.id for each, done in zip(waiting, observe_page(waiting), strict=True) if done} if waiting else set()
    except UNOBSERVABLE as error:
        log.warning("receipts_not_together", cause=type(error).__name__)  # one of them may be the cause: each alone
        observed = set()
    return [(each, each.id in observed) for each in kept]


def _observe(tx: Tx, kept: Kept) -> None:
    observe(tx.session, kept.told, now=tx.now)
    mark_observed(tx.session, [kept.id], now=tx.now)


def _observe_free(tx: Tx, *, page: Sequence[Kept]) -> set[ReceiptId]:
    each = {kept.id: kept for kept in page}  # a repetition tells the same under the same ids
    free = observe_free(tx.session, [told for kept in each.values() for told in kept.told], now=tx.now)
    observed = {kept.id for kept in each.values() if free.issuperset(told.attempt_id for told in kept.told)}
    mark_observed(tx.session, observed, now=tx.now)
    return observed


# Carriers call in bursts: sixteen calls at once are a few transactions, not thirty-two.
TOGETHER: Final[Together[_Asked, tuple[Kept, bool]]] = Together(_take_page)
