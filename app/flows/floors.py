"""Low-water marks: what an old snapshot keeps dead below them is walked over once, not by every sweep."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.flows.reconcile.receipts import MATCHED_WITHIN
from app.ground.db import Tx, run_together, transact

# A mark stands at the oldest row that still waits, and behind the clock: a transaction that took its
# `now` a while ago may commit a row that was due then. A receipt that nothing matches any more holds
# its mark down no longer.
RAISE_CHECKS = """
INSERT INTO sweep_floor (name, floor_at)
SELECT 'checks', least(%(behind)s, (
    SELECT next_check_at FROM attempt
    WHERE next_check_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'checks')
    ORDER BY next_check_at, id LIMIT 1))
ON CONFLICT (name) DO UPDATE SET floor_at = excluded.floor_at
"""
RAISE_RECEIPTS = """
INSERT INTO sweep_floor (name, floor_at)
SELECT 'receipts', least(%(behind)s, (
    SELECT received_at FROM receipt
    WHERE status IN ('waiting', 'unmatched') AND (status = 'waiting' OR received_at > %(matched_since)s)
      AND received_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'receipts')
    ORDER BY received_at, id LIMIT 1))
ON CONFLICT (name) DO UPDATE SET floor_at = excluded.floor_at
"""
LOWER: Final = ("DELETE FROM dispatch_floor", "DELETE FROM sweep_floor")
LAG: Final = timedelta(seconds=60)


def raise_sweep_floors() -> None:
    """Move the marks of polls, deadlines, horizons and receipts up to what still waits."""
    transact(_raise)


def lower_floors() -> None:
    """Forget all marks, so that the next look also sees what was committed late below them."""
    transact(_lower)


def _raise(tx: Tx) -> None:
    checks = {"behind": tx.now - LAG}
    receipts = checks | {"matched_since": tx.now - MATCHED_WITHIN}
    run_together(tx.session, [(RAISE_CHECKS, checks), (RAISE_RECEIPTS, receipts)])


def _lower(tx: Tx) -> None:
    run_together(tx.session, [(statement, {}) for statement in LOWER])
