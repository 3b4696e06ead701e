"""Ways to a person: the routes that serve an intent's channel and country, by priority, and which of them are open to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.policies import read_policies
from app.ledger.spend import ELSEWHERE
from policy.facts import Facts
from policy.findings import Refused
from policy.replay import facts_of
from policy.retry import Way
from policy.rules import sender

# What the decision that let an attempt go had seen, and every route that serves the same person.
SERVING = """
SELECT a.id AS attempt_id, d.policy_version_id, d.evidence, r.id AS route_id, r.settings ->> 'sender_type' AS sender_type,
       EXISTS (SELECT FROM pause p WHERE p.tenant_id = r.tenant_id AND p.route_id = r.id AND p.ended_at IS NULL
                 AND (p.country IS NULL OR p.country = coalesce(c.country, %(elsewhere)s))) AS is_stopped
FROM attempt a
JOIN decision d ON d.id = a.decision_id
JOIN intent i ON i.id = a.intent_id
JOIN contact c ON c.id = i.contact_id
JOIN route r ON r.tenant_id = a.tenant_id AND r.channel = i.channel AND (r.countries = '{}' OR c.country = ANY(r.countries))
WHERE a.id = ANY(%(attempts)s::uuid[])
ORDER BY a.id, r.priority, r.id
"""


def read_ways(session: Session, attempt_ids: Iterable[UUID], *, now: datetime) -> Mapping[UUID, Sequence[Way]]:
    """Read, for each of these attempts that left us, by which routes another may follow it.

    A route whose sender the pinned version would refuse for this person is no way: going there would
    close what the first route could still bring.
    """
    found = rows(session, SERVING, attempts=sorted(attempt_ids), elsewhere=ELSEWHERE)
    policies = read_policies(session, {row.policy_version_id for row in found})
    facts: dict[UUID, Facts] = {}
    ways: dict[UUID, list[Way]] = {}
    for row in found:
        seen = facts.get(row.attempt_id) or facts.setdefault(row.attempt_id, facts_of(row.evidence))
        document = policies[row.policy_version_id].document
        refused = sender.ask(document, replace(seen, sender_type=row.sender_type), now)
        ways.setdefault(row.attempt_id, []).append(_way(row, is_refused=isinstance(refused, Refused)))
    return ways


def _way(row: Any, *, is_refused: bool) -> Way:  # noqa: ANN401 - a row of SERVING
    return Way(row.route_id, is_open=not row.is_stopped and not is_refused)
