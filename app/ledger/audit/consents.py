"""Invariant 9, of consent: nobody is contacted on a consent that had been taken back, where the rules go by the latest word.

Where a category's basis is `acceptance` what stood then counts, and a later withdrawal is no breach.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit.check import Breach, Check, Scope, run
from policy.categories import Basis
from policy.document import InvalidDocument, parse

VERSIONS: Final = "SELECT id, document FROM policy_version"

# Evidence names the consents that were relied on. A decision that names this one was taken before the withdrawal
# committed, and while the gate bore its old mark `prepared` was first: it can lie after the moment at which the withdrawal
# was recorded by no more than that waited for its locks. What counts as said when is as in `people.consents.STANDING`.
AFTER_WITHDRAWAL: Final = """
SELECT DISTINCT a.id AS attempt_id, w.id AS withdrawal_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id JOIN decision d ON d.id = a.decision_id
JOIN unnest(%(versions)s::uuid[], %(categories)s::text[]) AS b (version_id, category)
     ON b.version_id = d.policy_version_id AND b.category = i.category
CROSS JOIN LATERAL jsonb_path_query(d.evidence, '$.rules[*] ? (@.rule == "consent").saw.consent[*]') AS relied (id)
JOIN consent g ON g.id::text = relied.id #>> '{}'
JOIN consent w ON w.tenant_id = g.tenant_id AND w.address_hash = g.address_hash AND w.channel = g.channel AND w.act = 'withdraw'
              AND (w.category IS NULL OR w.category = i.category) AND (w.kind IS NULL OR w.kind = g.kind)
              AND least(w.captured_at, w.recorded_at) >= least(g.captured_at, g.recorded_at)
WHERE a.prepared_at > w.recorded_at + %(lock_wait)s
"""
CHECK: Final = Check(
    9, "after_withdrawal", "an attempt was prepared on a consent that had been withdrawn before", AFTER_WITHDRAWAL
)


def find_after_withdrawal(session: Session, scope: Scope) -> Breach | None:
    """Look for handoffs on a consent that was taken back, in the categories whose version goes by the latest word."""
    latest = _by_the_latest(session)
    return run(session, CHECK, scope, versions=[v for v, _ in latest], categories=[c for _, c in latest])


def _by_the_latest(session: Session) -> list[tuple[object, str]]:
    """Name the categories of each version whose basis is `dispatch`; what does not parse is named by another check."""
    found: list[tuple[object, str]] = []
    for row in rows(session, VERSIONS):
        try:
            document = parse(row.document)
        except InvalidDocument:
            continue
        found += [(row.id, category) for category, rules in document.categories.items() if rules.basis is Basis.DISPATCH]
    return found
