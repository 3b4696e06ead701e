"""Invariant 9: what was counted against a cap is what was prepared, route by route, country by country, hour by hour."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from app.ledger.audit.check import Breach, Check, Scope, run
from app.ledger.spend import ELSEWHERE

MISCOUNTED: Final = """
SELECT coalesce(p.tenant_id, s.tenant_id) AS tenant_id, coalesce(p.route_id, s.route_id) AS route_id,
       coalesce(p.country, s.country) AS country, coalesce(p.hour, s.hour) AS hour, p.amount AS prepared, s.amount AS counted
FROM (SELECT a.tenant_id, date_trunc('hour', a.prepared_at, 'UTC') AS hour, a.route_id,
             coalesce(c.country, %(elsewhere)s) AS country, a.currency, sum(a.price) AS amount, count(*) AS attempt_count
      FROM attempt a JOIN intent i ON i.id = a.intent_id JOIN contact c ON c.id = i.contact_id
      JOIN decision d ON d.id = a.decision_id JOIN policy_version v ON v.id = d.policy_version_id
      WHERE a.prepared_at IS NOT NULL AND a.price IS NOT NULL
        AND (jsonb_typeof(v.document -> 'spend') = 'object' OR jsonb_typeof(v.document -> 'breaker') = 'object')
      GROUP BY 1, 2, 3, 4, 5) p
FULL JOIN spend s USING (tenant_id, hour, route_id, country, currency)
WHERE (p.amount, p.attempt_count) IS DISTINCT FROM (s.amount, s.attempt_count)
"""

CHECK: Final = Check(
    9, "spend_miscounted", "what was counted as spent is not what was prepared under a version that caps it", MISCOUNTED
)


def find_miscounted(session: Session, scope: Scope) -> Breach | None:
    """Add up all prices again; only where everything is walked, since no index leads to an hour's attempts."""
    return run(session, CHECK, scope, elsewhere=ELSEWHERE) if scope.since is None else None
