"""Cancellations of occasions: what they found is closed or told of, nobody follows, and the counts are those of the rows."""

from __future__ import annotations

from typing import Final

from app.ledger.audit.check import Check

# What left keeps the request; an outcome that was heard later closes it all the same.
LEFT_OPEN = """
SELECT i.id AS intent_id, c.cancellation_id
FROM scope s JOIN intent i ON i.id = s.id JOIN cancelled c ON c.event_id = i.event_id AND c.channel = i.channel
WHERE i.closed_at IS NULL AND (c.found = 'cancelled' OR (c.found = 'handed_off' AND i.close_requested_at IS NULL))
"""

FOLLOWED = """
SELECT i.id AS intent_id, c.cancellation_id
FROM scope s JOIN intent i ON i.id = s.id JOIN cancelled c ON c.event_id = i.event_id AND c.channel = i.channel
WHERE c.found = 'joined'
"""

MISCOUNTED = """
SELECT l.id AS cancellation_id
FROM cancellation l
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE found = 'cancelled') AS cancelled, count(*) FILTER (WHERE found = 'handed_off') AS handed_off,
           count(*) FILTER (WHERE found = 'joined') AS joined, count(*) FILTER (WHERE found = 'closed') AS closed,
           count(*) FILTER (WHERE found = 'excepted') AS excepted
    FROM cancelled c WHERE c.cancellation_id = l.id) f
WHERE l.id >= %(from_id)s AND l.cut_at IS NOT NULL
  AND (l.cancelled_count, l.handed_off_count, l.joined_count, l.closed_count, l.excepted_count)
      <> (f.cancelled, f.handed_off, f.joined, f.closed, f.excepted)
"""

CHECKS: Final = (
    Check(6, "left_open", "an intent that a cancellation found is open, and nobody asked for its close", LEFT_OPEN),
    Check(6, "followed", "a joined event that was called off got an intent of its own", FOLLOWED),
    Check(8, "miscounted", "a cancellation's counts are not those of what it found", MISCOUNTED),
)
