"""A look-up that finds nothing: counted when it can mean something, and then the pinned rule answers.

It never makes the attempt failed. Asked twice after the settling time, on a route whose look-ups are
conclusive, it lets the rule of the pinned version allow a new attempt, ask a person, or close.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.config import settings
from app.ground.db import rows
from app.ledger.books import lock_books_of
from app.ledger.consequences import Desk
from app.ledger.heard import ASKED_TWICE
from app.ledger.routes import Route, read_routes
from policy.states import AttemptState

COUNT = """
UPDATE attempt SET not_found_count = not_found_count + 1
WHERE id = ANY(%(ids)s::uuid[]) AND state = 'unknown' AND NOT taken
RETURNING id, not_found_count
"""


def count_not_found(session: Session, attempt_ids: Sequence[UUID], *, now: datetime) -> None:
    """Count look-ups that found nothing, where they count; at the second one, follow the pinned rule."""
    books = lock_books_of(session, attempt_ids)
    routes = read_routes(session, {books.attempts[i].route_id for i in attempt_ids})
    counting = [i for i in attempt_ids if _counts(books.attempts[i], routes[books.attempts[i].route_id], now)]
    counted = rows(session, COUNT, ids=sorted(counting)) if counting else []
    desk = Desk(session, books, {}, now)
    for row in counted:
        if row.not_found_count == ASKED_TWICE:
            desk.settle_not_found(books.attempts[row.id])
    desk.write()


def _counts(attempt: Any, route: Route, now: datetime) -> bool:  # noqa: ANN401 - a locked row
    if attempt.state != AttemptState.UNKNOWN or attempt.taken or not route.capabilities.lookup_conclusive:
        return False
    # A restored ledger may not know when it was prepared: certainly not after the first word of it.
    settled_at = (attempt.prepared_at or attempt.answered_at) + timedelta(seconds=settings().handoff_seconds) + route.settling_for
    return bool(now >= settled_at)
