"""Invariant 8: nothing is silently dropped. Each check looks at one snapshot, so a row on its way is in one place."""

from __future__ import annotations

from typing import Final

from app.ledger.audit.check import Check

EVENT_DROPPED = """
SELECT e.id AS event_id
FROM events s JOIN event e ON e.id = s.id
WHERE NOT EXISTS (SELECT FROM intent i WHERE i.event_id = e.id) AND NOT EXISTS (SELECT FROM joining j WHERE j.event_id = e.id)
"""

# An attempt that is asked about, a row that is due, or a question to a person: an open intent has one.
OPEN_NOWHERE = """
SELECT i.id AS intent_id
FROM intent i LEFT JOIN LATERAL (SELECT a.id, a.next_check_at FROM attempt a WHERE a.intent_id = i.id
                                 ORDER BY a.ordinal DESC LIMIT 1) last ON true
WHERE i.closed_at IS NULL AND last.next_check_at IS NULL
  AND NOT EXISTS (SELECT FROM outbox o WHERE o.attempt_id = last.id AND o.due_at < 'infinity')
  AND NOT EXISTS (SELECT FROM review r WHERE r.intent_id = i.id AND r.settled_at IS NULL)
"""

# A row that a person is asked about is due never, and one that is due never has such a question.
PARKED_AND_DUE = """
SELECT o.attempt_id, r.id AS review_id
FROM outbox o LEFT JOIN review r ON r.attempt_id = o.attempt_id AND r.settled_at IS NULL
WHERE (o.due_at = 'infinity') <> (r.id IS NOT NULL)
"""

QUEUED_NOT_DUE = """
SELECT a.id AS attempt_id
FROM attempt a WHERE a.state = 'queued' AND NOT EXISTS (SELECT FROM outbox o WHERE o.attempt_id = a.id)
"""

DUE_NOT_QUEUED = """
SELECT o.attempt_id
FROM outbox o LEFT JOIN attempt a ON a.id = o.attempt_id LEFT JOIN intent i ON i.id = a.intent_id
WHERE a.state IS DISTINCT FROM 'queued' OR i.closed_at IS NOT NULL OR o.route_id IS DISTINCT FROM a.route_id
   OR o.intent_id <> a.intent_id
   OR EXISTS (SELECT FROM attempt later WHERE later.intent_id = a.intent_id AND later.ordinal > a.ordinal)
"""

# A check that is overdue is the doctor's to name, not a breach.
NEXT_CHECK = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
WHERE (a.next_check_at IS NULL AND (a.state IN ('prepared', 'submitted') OR (a.state = 'unknown' AND a.horizon_at > %(now)s)))
   OR (a.next_check_at IS NOT NULL AND (a.state NOT IN ('prepared', 'submitted', 'unknown') OR a.horizon_at IS NULL))
"""

# A row due a minute from now waits for something, and says for what; a lease takes the reason away.
WAITS_WITHOUT_REASON = """
SELECT o.attempt_id
FROM outbox o JOIN intent i ON i.id = o.intent_id
WHERE (o.reason IS NULL AND o.lease IS NULL AND o.due_at > %(now)s + interval '1 minute')
   OR (i.state = 'deferred' AND i.reason IS NULL)
"""

CLOSED_WITHOUT_REASON = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id
WHERE i.closed_at IS NOT NULL AND i.reason IS NULL
"""

NO_ATTEMPT = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id
WHERE NOT EXISTS (SELECT FROM attempt a WHERE a.intent_id = i.id)
"""

RECEIPT_LOST = """
SELECT r.id AS receipt_id, x.id AS observation_id
FROM receipt r CROSS JOIN LATERAL (SELECT (p ->> 'id')::uuid AS id FROM jsonb_array_elements(r.reports) p) x
WHERE r.id >= %(from_id)s AND r.status = 'observed' AND NOT EXISTS (SELECT FROM observation o WHERE o.id = x.id)
  AND NOT EXISTS (SELECT FROM review v WHERE v.attempt_id = r.attempt_id AND v.cause = 'observation_refused')
"""

CHECKS: Final = (
    Check(8, "event_dropped", "an event has no intent and joined none", EVENT_DROPPED),
    Check(8, "open_nowhere", "an open intent is not due, not asked about, and in no review", OPEN_NOWHERE),
    Check(8, "parked_and_due", "an outbox row is parked without a review, or due with one", PARKED_AND_DUE),
    Check(8, "queued_not_due", "a queued attempt is not in the outbox", QUEUED_NOT_DUE),
    Check(8, "due_not_queued", "an outbox row does not belong to the queued, last attempt of an open intent", DUE_NOT_QUEUED),
    Check(8, "next_check", "an attempt should be asked about and is not, or is and should not", NEXT_CHECK),
    Check(8, "waits_without_reason", "a row waits and does not say why", WAITS_WITHOUT_REASON),
    Check(8, "closed_without_reason", "a closed intent does not say why", CLOSED_WITHOUT_REASON),
    Check(8, "no_attempt", "an intent has no attempt", NO_ATTEMPT),
    Check(8, "receipt_lost", "a receipt counts as observed and its report is not in the ledger", RECEIPT_LOST),
)
