"""Attempts at their horizon: nobody asks the carrier any more; the route and the rule say what follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from app.flows.keep import observe_until_kept
from app.ground.db import Tx, rows, transact
from app.ground.ids import AttemptId
from app.ledger.books import lock_books_of
from app.ledger.consequences import Desk
from app.ledger.observe import Told
from policy.states import AttemptState
from policy.words import Reason, Source

REACHED = """
SELECT id, state FROM attempt
WHERE next_check_at <= %(now)s
  AND next_check_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'checks')
  AND horizon_at <= %(now)s AND state IN ('submitted', 'unknown')
ORDER BY next_check_at, id LIMIT %(limit)s
"""

# What was in doubt already stays so and is asked about no more.
STOP_ASKING = """
UPDATE attempt SET next_check_at = NULL
WHERE id = ANY(%(ids)s::uuid[]) AND state = 'unknown' AND horizon_at <= %(now)s AND next_check_at IS NOT NULL
RETURNING id
"""

PAGE: Final = 200


def reach_horizons() -> int:
    """Settle a page of attempts that reached their horizon; return how many."""
    reached = transact(lambda tx: rows(tx.session, REACHED, now=tx.now, limit=PAGE))
    submitted = [AttemptId(r.id) for r in reached if r.state == AttemptState.SUBMITTED]
    observe_until_kept([Told(i, AttemptState.UNKNOWN, Source.RECONCILE, reason=Reason.HORIZON) for i in submitted])
    doubtful = [r.id for r in reached if r.state == AttemptState.UNKNOWN]
    if doubtful:
        transact(lambda tx: _stop_asking(tx, doubtful))
    return len(reached)


def _stop_asking(tx: Tx, attempt_ids: Sequence[UUID]) -> None:
    books = lock_books_of(tx.session, attempt_ids)
    stopped = rows(tx.session, STOP_ASKING, ids=sorted(attempt_ids), now=tx.now)
    desk = Desk(tx.session, books, {}, tx.now)
    for row in stopped:
        desk.settle_horizon(books.attempts[row.id])
    desk.write()
