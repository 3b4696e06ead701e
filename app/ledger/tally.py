"""Counts for /metrics: added up once per transition, as it gets its place in the feed.

Only the sequencer writes here, one at a time, so the rows are never fought over, and the counts
survive restarts: they are as exact as the ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, rows, run_together
from models.work import Tally
from policy.words import NOT_TAKEN

READ = """
SELECT t.n, t.state, t.from_state, t.reason, i.category, a.ordinal,
       extract(epoch FROM a.prepared_at - i.accepted_at) AS handoff_after,
       extract(epoch FROM t.at - a.prepared_at) AS since_handoff,
       NOT EXISTS (SELECT FROM transition o
                   WHERE o.intent_id = t.intent_id AND o.attempt_id = t.attempt_id AND o.n < t.n) AS is_first,
       NOT EXISTS (SELECT FROM transition o
                   WHERE o.intent_id = t.intent_id AND o.attempt_id = t.attempt_id AND o.n < t.n
                     AND o.state IN ('delivered', 'failed')) AS is_first_end,
       t.from_state IN ('queued', 'deferred') AND t.state IN ('handed_off', 'unknown', 'failed', 'delivered')
         AND (t.reason IS NULL OR t.reason NOT IN ('not_handed_off', 'throttled', 'auth_config')) AS is_handoff
FROM transition t JOIN intent i ON i.id = t.intent_id JOIN attempt a ON a.id = t.attempt_id
WHERE t.id = ANY(%(ids)s::uuid[])
"""

ADD = "ON CONFLICT (name, label) DO UPDATE SET value = tally.value + excluded.value"

BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)


def add_up(session: Session, transition_ids: Sequence[UUID]) -> None:
    """Count what these transitions mean."""
    counts: Counter[tuple[str, str]] = Counter()
    sums: dict[tuple[str, str], float] = {}
    for row in rows(session, READ, ids=sorted(transition_ids)):
        if row.n == 1:
            counts["accepted", row.category] += 1
        if row.is_first:
            counts["attempts", row.category] += 1
        if row.is_handoff:
            counts["handoffs", row.category] += 1
            if row.handoff_after is not None:  # in a restored ledger nobody knows when it was prepared
                _observe(counts, sums, "handoff_after", row.category, row.handoff_after)
        ended = row.state in {"delivered", "failed"} and row.is_first_end and row.reason not in NOT_TAKEN
        if ended and row.since_handoff is not None:
            _observe(counts, sums, "terminal_after", row.category, row.since_handoff)
        counts["transitions", row.state] += 1
    values = {**{k: float(v) for k, v in counts.items()}, **sums}
    new = [{"name": name, "label": label, "value": value} for (name, label), value in sorted(values.items())]
    run_together(session, [insertion(Tally, new, tail=ADD)])


def _observe(counts: Counter[tuple[str, str]], sums: dict[tuple[str, str], float], name: str, label: str, seconds: float) -> None:
    seconds = max(0.0, float(seconds))
    for bucket in (*BUCKETS, float("inf")):
        if seconds <= bucket:
            counts[f"{name}_bucket", f"{label}/{bucket}"] += 1
    sums[f"{name}_sum", label] = sums.get((f"{name}_sum", label), 0.0) + seconds
