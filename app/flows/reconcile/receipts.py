"""Receipts that are kept but not observed, and those that matched nobody until now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from psycopg import Error as PsycopgError
from sqlalchemy.exc import DBAPIError

from app.flows.keep import POISON, observe_until_kept
from app.flows.receipts import observe_alone, observe_page
from app.ground.db import rows, transact
from app.ground.log import log
from app.ledger.receipts import MATCH_LATE, UNOBSERVED, Kept, mark_observed, told_of

# The handler observes at once; what is older was left behind by a process or a database that went away.
LEFT_BEHIND_AFTER: Final = timedelta(seconds=5)
# Longer than any answer that could still name the remote id.
MATCHED_WITHIN: Final = timedelta(days=3)
PAGE: Final = 200


def observe_waiting() -> int:
    """Observe a page of receipts that are not observed yet; return how many."""
    transact(lambda tx: rows(tx.session, MATCH_LATE, since=tx.now - MATCHED_WITHIN))
    found = transact(lambda tx: rows(tx.session, UNOBSERVED, before=tx.now - LEFT_BEHIND_AFTER, limit=PAGE))
    waiting = [Kept(row.id, "waiting", duplicate=False, told=told_of(row.id, row.attempt_id, row.reports)) for row in found]
    for kept, is_observed in zip(waiting, _together(waiting), strict=True):
        if not is_observed:
            _alone(kept)
    return len(waiting)


def _together(waiting: Sequence[Kept]) -> list[bool]:
    try:
        return observe_page(waiting) if waiting else []
    except (*POISON, DBAPIError, PsycopgError) as error:
        log.warning("receipts_not_together", cause=type(error).__name__)  # one of them is poison: each alone
        return [False] * len(waiting)


def _alone(kept: Kept) -> None:
    try:
        observe_alone(kept)
    except (*POISON, DBAPIError, PsycopgError) as error:
        log.error("receipt_poison", receipt_id=str(kept.id), cause=type(error).__name__)
        observe_until_kept(kept.told)  # opens a review for the report that the ledger refuses
        transact(lambda tx: mark_observed(tx.session, [kept.id], now=tx.now))
