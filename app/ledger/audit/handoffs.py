"""Invariants 3 and 4: write before call, and at most one handoff per attempt.

SQL does not see the call itself, so these look for its traces: what was written before it, and what
a second call would leave behind.
"""

from __future__ import annotations

from typing import Final

from app.ledger.audit.check import Check

# A report about an attempt that was never prepared is evidence of a restored ledger; a carrier's
# answer to us is evidence of a call that nothing was written before.
ANSWERED_UNPREPARED = """
SELECT a.id AS attempt_id, o.id AS observation_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
WHERE o.source = 'answer' AND a.prepared_at IS NULL
"""

# A second, for a clock that was set back.
HEARD_BEFORE_PREPARED = """
SELECT a.id AS attempt_id, o.id AS observation_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
WHERE o.observed_at < a.prepared_at - interval '1 second'
"""

NOT_ADMITTED = """
SELECT a.id AS attempt_id, a.decision_id
FROM scope s JOIN attempt a ON a.intent_id = s.id LEFT JOIN decision d ON d.id = a.decision_id
WHERE a.prepared_at IS NOT NULL
  AND (d.id IS NULL OR d.intent_id <> a.intent_id OR d.verdict <> 'allow' OR d.decided_at > a.prepared_at
       OR d.valid_until <= a.prepared_at)
"""

PREPARED_AFTER_EXPIRY = """
SELECT a.id AS attempt_id, i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
WHERE a.prepared_at >= i.expires_at
"""

ANSWERED_TWICE = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
WHERE o.source = 'answer' GROUP BY a.id HAVING count(*) > 1
"""

DUE_AFTER_HANDOFF = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN outbox o ON o.attempt_id = a.id
WHERE a.prepared_at IS NOT NULL
"""

PREPARED_WITHOUT_LEASE = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
WHERE (a.prepared_at IS NULL) <> (a.lease IS NULL) OR (a.state = 'prepared' AND a.prepared_at IS NULL)
"""

# A report that brought an id which is not this attempt's, without saying that there is a conflict:
# two transactions brought it at once. The pair may be one message, or two.
REMOTE_ID_SHARED = """
SELECT o.attempt_id, r.attempt_id AS other_attempt_id, o.id AS observation_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
LEFT JOIN remote_id r ON r.route_id = a.route_id AND r.remote_id = o.remote_id
WHERE o.remote_id IS NOT NULL AND NOT o.conflict AND a.route_id IS NOT NULL AND r.attempt_id IS DISTINCT FROM o.attempt_id
"""

TWO_OPEN_ATTEMPTS = """
SELECT a.intent_id, min(a.id::text) AS attempt_id, max(a.id::text) AS other_attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
WHERE a.state IN ('queued', 'prepared') GROUP BY a.intent_id HAVING count(*) > 1
"""

CHECKS: Final = (
    Check(3, "answered_unprepared", "a carrier answered a call that nothing was written before", ANSWERED_UNPREPARED),
    Check(3, "heard_before_prepared", "something was heard before the attempt was prepared", HEARD_BEFORE_PREPARED),
    Check(3, "not_admitted", "an attempt was prepared without an earlier, valid decision that allows it", NOT_ADMITTED),
    Check(3, "prepared_after_expiry", "an attempt was prepared after its intent's end", PREPARED_AFTER_EXPIRY),
    Check(4, "answered_twice", "a carrier answered more than one call for one attempt", ANSWERED_TWICE),
    Check(4, "due_after_handoff", "a handed-off attempt is still in the outbox", DUE_AFTER_HANDOFF),
    Check(4, "prepared_without_lease", "an attempt was prepared, and under no lease", PREPARED_WITHOUT_LEASE),
    Check(4, "remote_id_shared", "a carrier's id was reported for an attempt that does not hold it", REMOTE_ID_SHARED),
    Check(4, "two_open_attempts", "two attempts of one intent may go out", TWO_OPEN_ATTEMPTS),
)
