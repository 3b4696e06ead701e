"""Invariant 10: the broker and Redis hold no truth, so nobody is contacted inside a cooldown or after a STOP.

What Redis says no to leaves no trace in the ledger; what it lets through does. The pairs are looked
for among handoffs, by the cooldown of the version that admitted the earlier one.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit.check import OVERLAP, Breach, Check, Scope, lowest_id, run
from policy.document import InvalidDocument, parse

VERSIONS: Final = "SELECT id, document FROM policy_version"

# A handoff holds its slot for the cooldown, unless it certainly was not taken: it failed before
# anything said that the carrier has it. What is heard later does not take the slot again.
HANDOFFS: Final = """
SELECT a.id, i.tenant_id, i.gate_hash, i.category, i.business_key, a.prepared_at,
       a.prepared_at + make_interval(secs => c.seconds) AS held_until,
       (SELECT min(f.observed_at) FROM observation f
        WHERE f.attempt_id = a.id AND f.state = 'failed' AND f.judgement = 'applied'
          AND NOT EXISTS (SELECT FROM observation k
                          WHERE k.attempt_id = a.id AND k.observed_at <= f.observed_at
                            AND (k.state IN ('submitted', 'delivered') OR k.remote_id IS NOT NULL))) AS freed_at
FROM {intents} s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
JOIN decision d ON d.id = a.decision_id
JOIN unnest(%(versions)s::uuid[], %(categories)s::text[], %(seconds)s::float8[]) AS c (version_id, category, seconds)
     ON c.version_id = d.policy_version_id AND c.category = i.category
WHERE a.prepared_at IS NOT NULL AND d.evidence #>> '{{facts,confirms}}' IS NULL  -- a reply takes no slot
"""

# Earlier than the scope by the longest cooldown: the first of a pair may be long settled.
INSIDE_COOLDOWN: Final = f"""
WITH handoff AS MATERIALIZED ({
    HANDOFFS.format(
        intents='''(SELECT id FROM scope UNION SELECT id FROM intent WHERE id >= %(cooled_id)s
                    UNION SELECT intent_id FROM transition WHERE id >= %(cooled_id)s)'''
    )
})
SELECT later.id AS attempt_id, earlier.id AS attempt_before_id
FROM handoff later JOIN handoff earlier
     ON earlier.tenant_id = later.tenant_id AND earlier.gate_hash = later.gate_hash AND earlier.category = later.category
    AND earlier.business_key <> later.business_key
    AND earlier.prepared_at <= later.prepared_at AND later.prepared_at < earlier.held_until
    AND (earlier.freed_at IS NULL OR earlier.freed_at > later.prepared_at)
    AND (earlier.prepared_at, earlier.id) < (later.prepared_at, later.id)
WHERE later.freed_at IS NULL
"""  # noqa: S608 - put together from the constants above

# While the cooldown runs the gate must say so: it is what the next prepare asks.
SLOT_LOST: Final = f"""
WITH handoff AS MATERIALIZED ({HANDOFFS.format(intents="scope")})
SELECT h.id AS attempt_id
FROM handoff h LEFT JOIN gate g ON g.tenant_id = h.tenant_id AND g.address_hash = h.gate_hash
WHERE h.held_until > %(now)s AND h.freed_at IS NULL
  AND ((g.slots -> h.category ->> 'until')::timestamptz >= h.held_until) IS NOT TRUE
"""  # noqa: S608 - put together from the constants above

# A STOP by text that names no category reaches as far as the version lets it: a decision that had seen it has judged
# that, and whether it judged rightly is what `unfaithful` asks. Nothing lets a text past any other suppression.
AFTER_STOP: Final = """
SELECT a.id AS attempt_id, p.id AS suppression_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
JOIN suppression p ON p.tenant_id = i.tenant_id AND p.address_hash = i.gate_hash AND p.channel = i.channel
                  AND p.act = 'suppress' AND (p.category IS NULL OR p.category = i.category)
LEFT JOIN decision d ON d.id = a.decision_id
WHERE a.prepared_at > p.at + %(lock_wait)s AND d.evidence #>> '{facts,confirms}' IS DISTINCT FROM p.id::text
  AND NOT EXISTS (SELECT FROM suppression l
                  WHERE l.tenant_id = p.tenant_id AND l.address_hash = p.address_hash AND l.act = 'lift'
                    AND p.id = ANY(l.lifts) AND l.at <= a.prepared_at + %(lock_wait)s)
  AND NOT (p.source = 'keyword' AND p.category IS NULL AND NOT p.everything
           AND coalesce(d.evidence -> 'facts' -> 'suppressions', '[]') @> jsonb_build_array(jsonb_build_object('id', p.id)))
"""

# Exempt is the one text that answers the very message from which the suppression came.
EXEMPT: Final = """
SELECT d.id AS decision_id, d.intent_id
FROM scope s JOIN decision d ON d.intent_id = s.id JOIN event e ON e.id = d.event_id
WHERE d.evidence #>> '{facts,confirms}' IS NOT NULL
  AND NOT EXISTS (SELECT FROM suppression p
                  WHERE p.id::text = d.evidence #>> '{facts,confirms}' AND p.tenant_id = d.tenant_id
                    AND p.act = 'suppress' AND p.cause_id::text = e.subject AND e.source = 'inbound')
"""

LIFTS_NOTHING: Final = """
SELECT l.id AS suppression_id, n.id AS lifted_id
FROM suppression l CROSS JOIN LATERAL unnest(l.lifts) AS n (id)
LEFT JOIN suppression p ON p.id = n.id AND p.tenant_id = l.tenant_id AND p.address_hash = l.address_hash
                       AND p.channel = l.channel AND p.act = 'suppress'
WHERE l.act = 'lift' AND l.id >= %(from_id)s AND p.id IS NULL
"""

CHECKS: Final = (
    Check(10, "inside_cooldown", "one person was contacted for two reasons inside one cooldown", INSIDE_COOLDOWN),
    Check(10, "slot_lost", "a handoff's cooldown still runs, and the gate does not know", SLOT_LOST),
    Check(10, "after_stop", "an attempt was prepared for somebody who had asked not to be contacted", AFTER_STOP),
    Check(10, "exempt_without_cause", "a decision is exempt from a suppression that its text does not answer", EXEMPT),
    Check(10, "lifts_nothing", "a lift names a row that is no suppression of its address", LIFTS_NOTHING),
)


def find_contacted_too_soon(session: Session, scope: Scope) -> list[Breach]:
    """Look for pairs inside a cooldown, slots that were lost, and handoffs after a STOP."""
    cooldowns = _cooldowns(session)
    longest = max((seconds for _, _, seconds in cooldowns), default=0.0)
    since = scope.since
    cooled_id = UUID(int=0) if since is None else lowest_id(since - OVERLAP * (1 + longest / OVERLAP.total_seconds()))
    params = {
        "versions": [version for version, _, _ in cooldowns],
        "categories": [category for _, category, _ in cooldowns],
        "seconds": [seconds for _, _, seconds in cooldowns],
        "cooled_id": cooled_id,
    }
    return [breach for check in CHECKS if (breach := run(session, check, scope, **params)) is not None]


def _cooldowns(session: Session) -> list[tuple[UUID, str, float]]:
    """Read how long each version leaves a person alone, by category; a version that does not parse is named by another check."""
    found = []
    for row in rows(session, VERSIONS):
        try:
            document = parse(row.document)
        except InvalidDocument:
            continue
        found += [(row.id, category.value, rules.cooldown.total_seconds()) for category, rules in document.categories.items()]
    return found
