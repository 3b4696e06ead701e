"""Invariants 5, 6 and 7: states climb, closing touches future work only, unknown is no evidence of failure."""

from __future__ import annotations

from typing import Final

from app.ledger.audit.check import Check

NOT_THE_JOIN = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id LEFT JOIN observation o ON o.attempt_id = a.id
GROUP BY a.id
HAVING CASE WHEN max(array_position(%(ranked)s::text[], o.state)) > 1
            THEN a.state <> (%(ranked)s::text[])[max(array_position(%(ranked)s::text[], o.state))]
            ELSE a.state NOT IN ('queued', 'suppressed', 'expired', 'cancelled', 'prepared') END
"""

WENT_BACK = """
SELECT t.id AS transition_id, t.attempt_id
FROM (SELECT t.id, t.attempt_id, t.state, lag(t.state) OVER same AS state_before, r.rank, lag(r.rank) OVER same AS rank_before
      FROM scope s JOIN transition t ON t.intent_id = s.id,
           LATERAL (SELECT coalesce(array_position(ARRAY['handed_off', 'unknown', 'failed', 'delivered'], t.state), 0) AS rank) r
      WINDOW same AS (PARTITION BY t.attempt_id ORDER BY t.n)) t
WHERE t.rank < t.rank_before OR (t.rank = t.rank_before AND t.rank > 0)
   OR (t.state IN ('suppressed', 'expired', 'cancelled') AND t.state_before NOT IN ('queued', 'deferred'))
"""

# Queued and prepared are one thing to the public.
LAST_TRANSITION = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
LEFT JOIN LATERAL (SELECT t.state FROM transition t WHERE t.intent_id = a.intent_id AND t.attempt_id = a.id
                   ORDER BY t.n DESC LIMIT 1) last ON true
WHERE CASE WHEN a.state IN ('queued', 'prepared') THEN last.state NOT IN ('queued', 'deferred')
           WHEN a.state = 'submitted' THEN last.state <> 'handed_off' ELSE last.state <> a.state END IS NOT FALSE
"""

APPLIED_ONCE = """
SELECT o.id AS observation_id, o.attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
LEFT JOIN transition t ON t.intent_id = a.intent_id AND t.attempt_id = a.id AND t.cause_id = o.id
     AND t.state = CASE o.state WHEN 'submitted' THEN 'handed_off' ELSE o.state END
GROUP BY o.id, o.attempt_id, o.judgement
HAVING count(t.id) <> (o.judgement = 'applied')::int
"""

# Delivered speaks for the intent whichever attempt it is; else the last attempt does.
PROJECTION = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id
JOIN LATERAL (SELECT bool_or(a.state = 'delivered') AS delivered, (array_agg(a.state ORDER BY a.ordinal DESC))[1] AS last
              FROM attempt a WHERE a.intent_id = i.id) x ON x.last IS NOT NULL
WHERE CASE WHEN x.delivered THEN i.state <> 'delivered' WHEN x.last = 'submitted' THEN i.state <> 'in_flight'
           WHEN x.last IN ('queued', 'prepared') THEN i.state NOT IN ('queued', 'deferred') ELSE i.state <> x.last END
"""

CLOSED_AFTER_HANDOFF = """
SELECT a.id AS attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
WHERE a.state IN ('suppressed', 'expired', 'cancelled') AND (a.prepared_at IS NOT NULL OR a.taken)
"""

AFTER_CLOSE = """
SELECT a.id AS attempt_id, i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
WHERE greatest(a.created_at, a.prepared_at) > least(i.closed_at, i.close_requested_at) + %(lock_wait)s
"""

# Another attempt may follow what failed for certain; what was in doubt needs the pinned version's
# rule, and two look-ups or as long a silence as it waits for; or a person who named it. What a rule
# let go says so itself, but for what was made before attempts did.
AFTER_UNKNOWN = """
SELECT a.id AS attempt_id, p.id AS attempt_before_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
JOIN attempt p ON p.intent_id = a.intent_id AND p.ordinal = a.ordinal - 1
JOIN intent i ON i.id = a.intent_id
LEFT JOIN decision d ON d.id = p.decision_id
LEFT JOIN policy_version v ON v.id = d.policy_version_id
WHERE NOT EXISTS (SELECT FROM observation o
                  WHERE o.attempt_id = p.id AND o.state = 'failed' AND o.judgement = 'applied'
                    AND o.observed_at <= a.created_at + %(lock_wait)s)
  AND NOT (coalesce(a.allowed_by, 'not_found') = 'not_found' AND p.not_found_count >= 2
           AND v.document #>> ARRAY['categories', i.category, 'ambiguity', 'not_found'] = 'resend')
  AND NOT (a.allowed_by = 'waited' AND v.document #>> ARRAY['categories', i.category, 'ambiguity', 'waited', 'then'] = 'resend'
           AND a.created_at >= coalesce(p.prepared_at, p.answered_at)
                               + (v.document #>> ARRAY['categories', i.category, 'ambiguity', 'waited', 'after'])::interval
           AND NOT EXISTS (SELECT FROM observation o
                           WHERE o.attempt_id = p.id AND o.observed_at < a.created_at - %(lock_wait)s
                             AND (o.remote_id IS NOT NULL OR o.source NOT IN ('answer', 'reconcile'))))
  AND NOT EXISTS (SELECT FROM operator_action w
                  WHERE w.tenant_id = a.tenant_id AND w.verb NOT IN ('cancel', 'pause', 'resume')
                    AND coalesce(w.subject ->> 'as', 'resend') = 'resend'
                    AND w.at <= a.created_at + %(lock_wait)s
                    AND (w.subject ->> 'attempt_id' = p.id::text OR w.subject ->> 'intent_id' = a.intent_id::text
                         OR w.subject ->> 'event_id' = a.event_id::text))
"""

GAP_IN_ORDINALS = """
SELECT a.intent_id
FROM scope s JOIN attempt a ON a.intent_id = s.id
GROUP BY a.intent_id HAVING min(a.ordinal) <> 1 OR max(a.ordinal) <> count(*)
"""

FAILED_BY_SILENCE = """
SELECT o.id AS observation_id, o.attempt_id
FROM scope s JOIN attempt a ON a.intent_id = s.id JOIN observation o ON o.attempt_id = a.id
WHERE o.source = 'reconcile' AND o.state = 'failed'
"""

CHECKS: Final = (
    Check(5, "not_the_join", "an attempt's state is not the highest that was heard of it", NOT_THE_JOIN),
    Check(5, "went_back", "a transition goes back, repeats, or closes what was handed off", WENT_BACK),
    Check(5, "last_transition", "an attempt's last transition does not say its state", LAST_TRANSITION),
    Check(5, "applied_once", "an observation and its transition are not one to one", APPLIED_ONCE),
    Check(5, "projection", "an intent's state does not follow from its attempts", PROJECTION),
    Check(6, "closed_after_handoff", "an attempt was closed although it had been handed off", CLOSED_AFTER_HANDOFF),
    Check(6, "after_close", "an attempt was made or prepared after its intent was to be closed", AFTER_CLOSE),
    Check(7, "after_unknown", "an attempt follows one in doubt, and neither a rule nor a person allowed it", AFTER_UNKNOWN),
    Check(7, "gap_in_ordinals", "an attempt of an intent is missing", GAP_IN_ORDINALS),
    Check(7, "failed_by_silence", "an attempt was taken for failed because nothing was heard", FAILED_BY_SILENCE),
)
