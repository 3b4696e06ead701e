"""Intents whose time ran out while nobody could claim them: paused, stopped or parked rows expire as well."""

from __future__ import annotations

from typing import Final

from app.ground.db import Tx, rows, transact
from app.ledger.books import claim_books
from app.ledger.close import Closing, close_intents
from policy.states import AttemptState
from policy.words import Reason, Source

# A row under a lease is a worker's; prepare looks at the expiry itself.
EXPIRED = """
SELECT i.id FROM intent i JOIN outbox o ON o.intent_id = i.id
WHERE i.closed_at IS NULL AND i.expires_at <= %(now)s AND (o.leased_until IS NULL OR o.leased_until <= %(now)s)
ORDER BY i.expires_at, i.id LIMIT %(limit)s
"""

PAGE: Final = 200
# What ended while everything was down is thousands at once; the sweep comes by again in two seconds.
PAGES: Final = 10


def expire_due() -> int:
    """Close what has ended, page by page; return how many."""
    closed = 0
    for _ in range(PAGES):
        page = expire_page()
        closed += page
        if page < PAGE:
            break
    return closed


def expire_page() -> int:
    """Close a page of intents whose time is over and that nothing left for; return how many."""
    return transact(_expire)


def _expire(tx: Tx) -> int:
    found = rows(tx.session, EXPIRED, now=tx.now, limit=PAGE)
    books = claim_books(tx.session, [row.id for row in found])
    free = {o.intent_id for o in books.outbox.values() if o.leased_until is None or o.leased_until <= tx.now}
    closings = [Closing(i, AttemptState.EXPIRED, Reason.EXPIRED, Source.RECONCILE) for i in sorted(free)]
    return len(close_intents(tx.session, books, closings, now=tx.now).closed)
