"""Trace one event through the books: what was decided, tried, heard and changed, without a personal value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows, run_together
from app.people.provenance import Act, acts_by_id, covering

EVENT_OF = """
SELECT id FROM event WHERE id = %(id)s
UNION SELECT event_id FROM intent WHERE id = %(id)s
UNION SELECT event_id FROM attempt WHERE id = %(id)s
"""

EVENT = """
SELECT e.id, t.name AS tenant, e.key, e.key_given, e.type, e.subject, e.recipient_ref, e.category, e.template_name,
       e.template_version, p.name AS policy_name, p.version AS policy_version, e.source, e.accepted_at, e.expires_at,
       e.not_before, e.metadata, e.stake
FROM event e LEFT JOIN tenant t ON t.id = e.tenant_id LEFT JOIN policy_version p ON p.id = e.policy_version_id
WHERE e.id = %(event)s
"""

# An event that joined is told by the intent it joined, as long as it has none of its own.
INTENTS = """
SELECT i.id, i.event_id, i.channel, i.state, i.reason, i.next_at, i.accepted_at, i.holds_key, i.close_requested_at,
       i.close_request, i.closed_at, i.event_id <> %(event)s AS joined
FROM intent i
WHERE i.event_id = %(event)s
   OR i.id IN (SELECT j.intent_id FROM joining j
               WHERE j.event_id = %(event)s
                 AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = j.event_id AND own.channel = j.channel))
ORDER BY i.channel, i.id
"""

DECISIONS = """
SELECT d.id, d.intent_id, d.attempt_id, d.moment, d.verdict, d.reason, d.not_before, d.valid_until, d.decided_at, d.evidence,
       p.name AS policy_name, p.version AS policy_version, p.sha256, p.owner
FROM decision d LEFT JOIN policy_version p ON p.id = d.policy_version_id
WHERE d.intent_id = ANY(%(intents)s::uuid[]) ORDER BY d.decided_at, d.id
"""

ATTEMPTS = """
SELECT a.id, a.intent_id, a.ordinal, r.name AS route, r.carrier, a.state, a.error_class, a.error_code, a.encoding,
       a.segment_count, a.decision_id, a.prepared_at, a.answered_at, a.ended_at, a.taken, a.next_check_at, a.horizon_at,
       a.check_count, a.not_found_count, a.unheard_at, a.allowed_by, a.created_at,
       nullif(o.due_at, 'infinity') AS due_at, o.due_at = 'infinity' AS parked,
       o.reason AS outbox_reason, o.leased_until, o.lost_lease_count
FROM attempt a LEFT JOIN route r ON r.id = a.route_id LEFT JOIN outbox o ON o.attempt_id = a.id
WHERE a.intent_id = ANY(%(intents)s::uuid[]) ORDER BY a.intent_id, a.ordinal
"""

REMOTE_IDS = """
SELECT r.attempt_id, r.remote_id, r.part FROM remote_id r JOIN attempt a ON a.id = r.attempt_id
WHERE a.intent_id = ANY(%(intents)s::uuid[]) ORDER BY r.attempt_id, r.part
"""

OBSERVATIONS = """
SELECT o.id, o.attempt_id, o.source, o.state, o.judgement, o.conflict, o.error_class, o.error_code, o.reason, o.remote_id,
       o.receipt_id, o.source_at, o.observed_at
FROM observation o JOIN attempt a ON a.id = o.attempt_id
WHERE a.intent_id = ANY(%(intents)s::uuid[]) ORDER BY o.observed_at, o.id
"""

RECEIPTS = """
SELECT r.id, r.attempt_id, r.status, r.repeat_count, r.received_at, r.observed_at
FROM receipt r JOIN attempt a ON a.id = r.attempt_id
WHERE a.intent_id = ANY(%(intents)s::uuid[]) ORDER BY r.received_at, r.id
"""

TRANSITIONS = """
SELECT t.id, t.intent_id, t.attempt_id, t.n, t.from_state, t.state, t.reason, t.next_at, t.cause, t.cause_id, t.at
FROM transition t WHERE t.intent_id = ANY(%(intents)s::uuid[]) ORDER BY t.intent_id, t.n
"""

REVIEWS = """
SELECT v.id, v.intent_id, v.attempt_id, v.cause, v.opened_at, v.settled_at, v.settled_as, v.settled_by, v.settled_reason
FROM review v WHERE v.intent_id = ANY(%(intents)s::uuid[]) ORDER BY v.opened_at, v.id
"""


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything the ledger says about one event."""

    event: Any
    intents: Sequence[Any]
    suppressions: Sequence[Act]
    """Those that forbade it, as the decisions name them."""
    decisions: Sequence[Any]
    attempts: Sequence[Any]
    remote_ids: Sequence[Any]
    observations: Sequence[Any]
    receipts: Sequence[Any]
    transitions: Sequence[Any]
    reviews: Sequence[Any]


def find_trace(session: Session, *, wanted: UUID) -> Trace | None:
    """Find what is known of an event, by its id, an intent's or an attempt's; None when nothing has this id."""
    found = rows(session, EVENT_OF, id=wanted)
    if not found:
        return None
    of_event = {"event": found[0].id}
    event, intents = run_together(session, [(EVENT, of_event), (INTENTS, of_event)])
    of_intents = {"intents": [intent.id for intent in intents]}
    parts = (DECISIONS, ATTEMPTS, REMOTE_IDS, OBSERVATIONS, RECEIPTS, TRANSITIONS, REVIEWS)
    found_parts = run_together(session, [(part, of_intents) for part in parts])
    forbidden = acts_by_id(session, [each for decision in found_parts[0] for each in covering(decision.evidence)])
    return Trace(event[0], intents, forbidden, *found_parts)
