"""Invariant 12: history has no gaps, and what keeps its tables from being rewritten is in place."""

from __future__ import annotations

from typing import Final

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit.check import NAMED, Breach, Check
from models.all import Base
from models.triggers import APPEND_ONLY, IMMUTABLE

GAP_IN_N = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id LEFT JOIN transition t ON t.intent_id = i.id
GROUP BY i.id, i.transition_count
HAVING count(t.id) <> i.transition_count OR min(t.n) <> 1 OR max(t.n) <> count(t.id)
    OR (array_agg(t.state ORDER BY t.n))[1] NOT IN ('queued', 'suppressed', 'expired')
"""

NOT_IN_FEED = """
SELECT t.id AS transition_id, t.intent_id
FROM scope s JOIN transition t ON t.intent_id = s.id
LEFT JOIN feed f ON f.transition_id = t.id LEFT JOIN feed_pending p ON p.transition_id = t.id
WHERE (f.position IS NULL) = (p.transition_id IS NULL)
"""

OUT_OF_ORDER = """
SELECT x.transition_id, x.intent_id
FROM (SELECT f.transition_id, f.intent_id, t.n, lag(t.n) OVER (PARTITION BY f.intent_id ORDER BY f.position) AS n_before
      FROM scope s JOIN feed f ON f.intent_id = s.id LEFT JOIN transition t ON t.id = f.transition_id) x
WHERE x.n IS NULL OR x.n <> coalesce(x.n_before, 0) + 1
"""

PENDING_OF_NOTHING = """
SELECT p.transition_id, p.intent_id
FROM feed_pending p LEFT JOIN transition t ON t.id = p.transition_id
WHERE (t.intent_id, t.n, t.tenant_id) IS DISTINCT FROM (p.intent_id, p.n, p.tenant_id)
"""

ANOTHER_READER = """
SELECT f.transition_id, f.intent_id
FROM scope s JOIN intent i ON i.id = s.id JOIN feed f ON f.intent_id = i.id
WHERE (f.tenant_id, f.recipient_ref) <> (i.tenant_id, i.recipient_ref)
"""

CHECKS: Final = (
    Check(12, "gap_in_n", "an intent's transitions are not counted from 1 without a gap", GAP_IN_N),
    Check(12, "not_in_feed", "a transition is neither in the feed nor pending, or is in both", NOT_IN_FEED),
    Check(12, "out_of_order", "the feed skips a transition of an intent, or has it out of order", OUT_OF_ORDER),
    Check(12, "pending_of_nothing", "a pending feed row does not fit its transition", PENDING_OF_NOTHING),
    Check(12, "another_reader", "the feed shows a transition to another tenant or recipient", ANOTHER_READER),
)

TRIGGERS: Final = """
SELECT c.relname AS name FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE c.relnamespace = current_schema()::regnamespace AND t.tgname IN ('keep_rows', 'keep_table') AND t.tgenabled <> 'D'
GROUP BY c.relname HAVING count(*) = 2
"""

UNIQUES: Final = """
SELECT c.relname AS name FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE c.relnamespace = current_schema()::regnamespace AND i.indisunique AND i.indisvalid AND i.indisready
"""

# What the database itself holds, by the invariant that stands on it.
GUARDED: Final = {"event": 1, "intent": 2, "joining": 2, "attempt": 4, "remote_id": 4, "observation": 5, "suppression": 10}


def find_missing_guards(session: Session) -> list[Breach]:
    """Look for unique keys and append-only triggers that are not there, or not in force."""
    guarded = {row.name for row in rows(session, TRIGGERS)}
    unguarded = [(table, f"trigger on {table}") for table in (*APPEND_ONLY, *IMMUTABLE) if table not in guarded]
    there = {row.name for row in rows(session, UNIQUES)}
    missing = [(table, name) for table, name in _unique_names() if name not in there]
    by_invariant: dict[int, list[dict[str, str]]] = {}
    for table, name in [*unguarded, *missing]:
        by_invariant.setdefault(GUARDED.get(table, 12), []).append({"guard": name})
    words = "a unique key or an append-only trigger is missing or not in force"
    return [Breach(n, "guard_missing", words, len(found), found[:NAMED]) for n, found in sorted(by_invariant.items())]


def _unique_names() -> list[tuple[str, str]]:
    """Name every unique index that the models declare."""
    naming = Base.metadata.naming_convention
    names = []
    for table in Base.metadata.sorted_tables:
        names += [(table.name, str(index.name)) for index in table.indexes if index.unique]
        for constraint in table.constraints:
            if isinstance(constraint, UniqueConstraint):
                given = "_".join(column.name for column in constraint.columns)
                names.append((table.name, str(naming["uq"]) % {"table_name": table.name, "column_0_N_name": given}))
    return names
