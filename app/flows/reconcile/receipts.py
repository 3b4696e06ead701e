"""Receipts that are kept but not observed, and those that matched nobody until now."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.flows.keep import POISON, observe_until_kept
from app.flows.receipts import observe_receipt
from app.ground.db import Tx, rows, transact
from app.ground.log import log
from app.ledger.receipts import MATCH_LATE, UNOBSERVED, mark_observed, told_of

# The handler observes at once; what is older was left behind by a process or a database that went away.
LEFT_BEHIND_AFTER: Final = timedelta(seconds=5)
# Longer than any answer that could still name the remote id.
MATCHED_WITHIN: Final = timedelta(days=3)
PAGE: Final = 200


def observe_waiting() -> int:
    """Observe a page of receipts that are not observed yet; return how many."""
    transact(lambda tx: rows(tx.session, MATCH_LATE, since=tx.now - MATCHED_WITHIN))
    waiting = transact(lambda tx: rows(tx.session, UNOBSERVED, before=tx.now - LEFT_BEHIND_AFTER, limit=PAGE))
    for receipt in waiting:
        _observe(receipt)
    return len(waiting)


def _observe(receipt: Any) -> None:  # noqa: ANN401 - a row of UNOBSERVED
    told = told_of(receipt.id, receipt.attempt_id, receipt.reports)
    try:
        transact(lambda tx: observe_receipt(tx, receipt.id, told))
    except (*POISON, DBAPIError, PsycopgError) as error:
        log.error("receipt_poison", receipt_id=str(receipt.id), cause=type(error).__name__)
        observe_until_kept(told)  # opens a review for the report that the ledger refuses
        transact(lambda tx: _mark(tx, receipt))


def _mark(tx: Tx, receipt: Any) -> None:  # noqa: ANN401 - a row of UNOBSERVED
    mark_observed(tx.session, [receipt.id], now=tx.now)
