"""An attempt in doubt of which nothing at all was heard: the pinned rule that waited for a word answers.

Silence is no evidence of failure, and never makes an attempt failed. After as long as the rule says it
may allow a new attempt, ask a person, or close. A word of any kind, or a question that is open, ends
the waiting: then the outcome, or that person, decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import run_together
from app.ledger.books import Books
from app.ledger.consequences import Desk
from policy.states import AttemptState

# The lock on the attempts is held: what was heard before is seen here, and what comes later finds
# the new attempt, and holds it. A receipt that is kept and not observed yet is a word as well.
SILENT = """
SELECT a.id FROM attempt a
WHERE a.id = ANY(%(ids)s::uuid[]) AND a.unheard_at <= %(now)s
  AND NOT EXISTS (SELECT FROM remote_id r WHERE r.attempt_id = a.id)
  AND NOT EXISTS (SELECT FROM observation o WHERE o.attempt_id = a.id AND o.source NOT IN ('answer', 'reconcile'))
  AND NOT EXISTS (SELECT FROM receipt c WHERE c.attempt_id = a.id)
  AND NOT EXISTS (SELECT FROM review v WHERE v.intent_id = a.intent_id AND v.settled_at IS NULL)
"""

STOP_WAITING = "UPDATE attempt SET unheard_at = NULL WHERE id = ANY(%(ids)s::uuid[]) AND unheard_at <= %(now)s"


def settle_unheard(session: Session, books: Books, attempt_ids: Sequence[UUID], *, now: datetime) -> int:
    """Follow the rule for those of these locked attempts that stayed silent; return how many that were."""
    ids = {"ids": sorted(attempt_ids), "now": now}
    silent, _ = run_together(session, [(SILENT, ids), (STOP_WAITING, ids)])
    desk = Desk(session, books, {}, now)
    waiting = [books.attempts[row.id] for row in silent if _waits(books, books.attempts[row.id])]
    desk.settle_unheard(waiting)
    desk.write()
    return len(waiting)


def _waits(books: Books, attempt: Any) -> bool:  # noqa: ANN401 - a locked row
    """Say whether somebody still waits for the outcome of the intent's last attempt."""
    intent = books.intents[attempt.intent_id]
    is_last = books.attempts_of(intent.id)[-1].id == attempt.id
    is_open = intent.closed_at is None and intent.close_requested_at is None
    return is_open and is_last and attempt.state == AttemptState.UNKNOWN and not attempt.taken
