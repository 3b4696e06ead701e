"""Attempts whose worker went away between `prepared` and an answer: nobody knows, so they are in doubt."""

from __future__ import annotations

from typing import Final

from app.flows.keep import observe_until_kept
from app.ground.db import rows, transact
from app.ground.ids import AttemptId
from app.ledger.observe import Told
from policy.states import AttemptState
from policy.words import Reason, Source

PASSED = """
SELECT id FROM attempt WHERE next_check_at <= %(now)s AND state = 'prepared' ORDER BY next_check_at, id LIMIT %(limit)s
"""

PAGE: Final = 200


def put_in_doubt() -> int:
    """Move a page of prepared attempts past their deadline to unknown; a late answer still counts."""
    passed = transact(lambda tx: rows(tx.session, PASSED, now=tx.now, limit=PAGE))
    told = [Told(AttemptId(r.id), AttemptState.UNKNOWN, Source.RECONCILE, reason=Reason.NO_ANSWER) for r in passed]
    return len(observe_until_kept(told))
