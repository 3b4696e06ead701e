"""Invariants 1 and 2: one key, one event; one intent per business key and channel, for good."""

from __future__ import annotations

from typing import Final

from app.ledger.audit.check import Check

KEY_TWICE = """
SELECT e.id AS event_id, o.id AS other_event_id
FROM events s JOIN event e ON e.id = s.id
JOIN event o ON o.tenant_id = e.tenant_id AND o.key_given = e.key_given AND o.key = e.key AND o.id <> e.id
"""

# Percent-encoding is not for SQL: parts that need none are put together again, the others are only counted.
KEY_NOT_DERIVED = """
SELECT e.id AS event_id
FROM events s JOIN event e ON e.id = s.id
WHERE (NOT e.key_given AND e.key <> e.business_key)
   OR length(e.business_key) - length(replace(e.business_key, '/', '')) <> 2
   OR ((e.type || e.subject || e.recipient_ref) ~ '^[A-Za-z0-9_.~-]+$'
       AND e.business_key <> concat_ws('/', e.type, e.subject, e.recipient_ref))
"""

TWO_HOLDERS = """
SELECT i.id AS intent_id, o.id AS other_intent_id
FROM scope s JOIN intent i ON i.id = s.id
JOIN intent o ON o.tenant_id = i.tenant_id AND o.business_key = i.business_key AND o.channel = i.channel AND o.id <> i.id
WHERE i.holds_key AND o.holds_key
"""

TWO_INTENTS = """
SELECT i.id AS intent_id, o.id AS other_intent_id
FROM scope s JOIN intent i ON i.id = s.id
JOIN intent o ON o.event_id = i.event_id AND o.channel = i.channel AND o.id <> i.id
"""

OPEN_WITHOUT_KEY = """
SELECT i.id AS intent_id FROM scope s JOIN intent i ON i.id = s.id WHERE i.closed_at IS NULL AND NOT i.holds_key
"""

# What was heard after the close could not free or keep the key any more, and is no breach.
FREED_AFTER_HANDOFF = """
SELECT i.id AS intent_id, a.id AS attempt_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
WHERE i.closed_at IS NOT NULL AND NOT i.holds_key AND a.state IN ('prepared', 'submitted', 'unknown', 'failed', 'delivered')
  AND (a.taken OR a.error_class IS NULL OR a.error_class NOT IN ('not_handed_off', 'throttled', 'auth_config'))
  AND NOT EXISTS (SELECT FROM observation o WHERE o.attempt_id = a.id AND o.observed_at > i.closed_at)
"""

KEPT_WITHOUT_HANDOFF = """
SELECT i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id JOIN attempt a ON a.intent_id = i.id
LEFT JOIN observation o ON o.attempt_id = a.id AND o.observed_at > i.closed_at
WHERE i.closed_at IS NOT NULL AND i.holds_key
GROUP BY i.id
HAVING count(o.id) = 0
   AND NOT bool_or(a.state IN ('prepared', 'submitted', 'unknown', 'failed', 'delivered')
                   AND (a.taken OR coalesce(a.error_class, '') NOT IN ('not_handed_off', 'throttled', 'auth_config')))
"""

# A joined event has an intent of its own only after the key was freed.
JOINED_AND_CONTACTING = """
SELECT j.event_id, own.id AS intent_id, i.id AS joined_intent_id
FROM scope s JOIN intent own ON own.id = s.id
JOIN joining j ON j.event_id = own.event_id AND j.channel = own.channel
JOIN intent i ON i.id = j.intent_id
WHERE i.holds_key OR i.closed_at IS NULL
"""

# Opening the next intent happens in the transaction that frees the key, at the same `now`. An event
# that was cancelled while it waited gets none.
NOT_PROMOTED = """
SELECT j.event_id, i.id AS intent_id
FROM scope s JOIN intent i ON i.id = s.id JOIN joining j ON j.intent_id = i.id
JOIN event e ON e.id = j.event_id JOIN person_key k ON k.id = e.person_key_id
WHERE i.closed_at IS NOT NULL AND NOT i.holds_key AND e.expires_at > i.closed_at AND k.wrapped_key IS NOT NULL
  AND NOT EXISTS (SELECT FROM intent n JOIN transition t ON t.intent_id = n.id AND t.n = 1
                  WHERE n.tenant_id = i.tenant_id AND n.business_key = i.business_key AND n.channel = i.channel
                    AND n.id <> i.id AND t.at >= i.closed_at)
  AND NOT EXISTS (SELECT FROM operator_action c
                  WHERE c.tenant_id = j.tenant_id AND c.verb = 'cancel' AND c.subject ->> 'event_id' = j.event_id::text)
  AND NOT EXISTS (SELECT FROM cancelled c WHERE c.event_id = j.event_id AND c.channel = j.channel AND c.found = 'joined')
"""

UNLIKE_ITS_EVENT = """
SELECT i.id AS intent_id, e.id AS event_id
FROM scope s JOIN intent i ON i.id = s.id JOIN event e ON e.id = i.event_id
WHERE (i.tenant_id, i.business_key, i.category, i.recipient_ref) <> (e.tenant_id, e.business_key, e.category, e.recipient_ref)
UNION
SELECT i.id, e.id
FROM scope s JOIN intent i ON i.id = s.id JOIN joining j ON j.intent_id = i.id JOIN event e ON e.id = j.event_id
WHERE (i.tenant_id, i.business_key, i.channel) <> (e.tenant_id, e.business_key, j.channel)
"""

CHECKS: Final = (
    Check(1, "key_twice", "two events have the same key", KEY_TWICE),
    Check(1, "key_not_derived", "an event's key is not the one that follows from what it says", KEY_NOT_DERIVED),
    Check(2, "two_holders", "two intents hold the same business key on one channel", TWO_HOLDERS),
    Check(2, "two_intents", "one event has two intents on one channel", TWO_INTENTS),
    Check(2, "open_without_key", "an open intent does not hold its business key", OPEN_WITHOUT_KEY),
    Check(2, "freed_after_handoff", "an intent gave its key up although an attempt had been handed off", FREED_AFTER_HANDOFF),
    Check(2, "kept_without_handoff", "a closed intent keeps its key although nothing was handed off", KEPT_WITHOUT_HANDOFF),
    Check(2, "joined_and_contacting", "a joined event has an intent of its own while the key is held", JOINED_AND_CONTACTING),
    Check(2, "not_promoted", "a key was freed, and the event that had joined did not get it", NOT_PROMOTED),
    Check(2, "unlike_its_event", "an intent does not say what its event says", UNLIKE_ITS_EVENT),
)
