"""Attempts whose worker went away between `prepared` and an answer: nobody knows, so they are in doubt."""

from __future__ import annotations

from typing import Final

from app.ground.db import Tx, rows, transact
from app.ground.ids import AttemptId
from app.ledger.books import claim_books, intents_of
from app.ledger.observe import Told, observe
from policy.states import AttemptState
from policy.words import Reason, Source

PASSED = """
SELECT id FROM attempt
WHERE next_check_at <= %(now)s
  AND next_check_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'checks') AND state = 'prepared'
ORDER BY next_check_at, id LIMIT %(limit)s
"""

PAGE: Final = 200


def put_in_doubt() -> int:
    """Move a page of prepared attempts past their deadline to unknown; a late answer still counts."""
    return transact(_doubt)


def _doubt(tx: Tx) -> int:
    passed = {row.id for row in rows(tx.session, PASSED, now=tx.now, limit=PAGE)}
    # Looked at again under the locks: an answer that came since is no "no answer", and would be
    # outranked by it. What somebody holds is being answered now.
    books = claim_books(tx.session, intents_of(tx.session, passed).values())
    still = [a.id for a in books.attempts.values() if a.id in passed and a.state == AttemptState.PREPARED]
    told = [Told(AttemptId(i), AttemptState.UNKNOWN, Source.RECONCILE, reason=Reason.NO_ANSWER) for i in still]
    return len(observe(tx.session, told, now=tx.now))
