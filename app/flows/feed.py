"""Give new transitions their places in the feed."""

from __future__ import annotations

from app.ground.db import transact
from app.ledger.feed import PAGE, sequence


def sequence_feed() -> int:
    """Sequence until nothing is pending; return how many transitions got a place."""
    total = 0
    while True:
        moved = transact(lambda tx: sequence(tx.session))
        total += moved
        if moved < PAGE:
            return total
