"""Attempts in doubt of which nothing was heard for as long as a rule waits: that rule answers."""

from __future__ import annotations

from typing import Final

from app.ground.db import Tx, rows, transact
from app.ledger.books import claim_books
from app.ledger.unheard import settle_unheard

DUE = "SELECT id, intent_id FROM attempt WHERE unheard_at <= %(now)s ORDER BY unheard_at, id LIMIT %(limit)s"

PAGE: Final = 200


def answer_silence() -> int:
    """Settle a page of attempts whose wait is over; return how many a rule answered for."""
    return transact(_answer)


def _answer(tx: Tx) -> int:
    due = rows(tx.session, DUE, now=tx.now, limit=PAGE)
    if not due:
        return 0
    # What somebody holds is being heard of now; the sweep comes by again.
    books = claim_books(tx.session, {row.intent_id for row in due})
    ours = [row.id for row in due if row.id in books.attempts]
    return settle_unheard(tx.session, books, ours, now=tx.now)
