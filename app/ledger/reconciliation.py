"""Reconciliation: where the books wait for, or contradict, what others say. Each view has a count, an age, a stake and its rows.

What stands open is shown as long as it does. What happened once (a contradiction, a late delivery, an
event that joined, a receipt) is shown from an instant on, since nothing ever takes it away.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows, run_together
from app.ledger.audit.check import lowest_id


class View(StrEnum):
    """The views, in the order of an attempt's life."""

    UNATTEMPTED = "unattempted"
    PREPARED = "prepared"
    UNCHECKED = "unchecked"
    CONTRADICTED = "contradicted"
    CANCELLED_DELIVERED = "cancelled_delivered"
    JOINED = "joined"
    UNMATCHED = "unmatched"
    QUARANTINED = "quarantined"
    REFUSED = "refused"

    @property
    def words(self) -> str:
        """Say what its rows are."""
        return WORDS[self]


WORDS: Final = {
    View.UNATTEMPTED: "open intents that nobody carries on",
    View.PREPARED: "attempts with no answer and no id yet",
    View.UNCHECKED: "attempts past their next check",
    View.CONTRADICTED: "failed and delivered, or two ids",
    View.CANCELLED_DELIVERED: "delivered although cancelled",
    View.JOINED: "events that joined another's intent",
    View.UNMATCHED: "receipts that match no attempt",
    View.QUARANTINED: "receipts that cannot be used",
    View.REFUSED: "receipts that did not verify",
}

# Every view selects the same columns: id (the cursor: made in the order of time), at, event_id,
# intent_id, attempt_id, receipt_id, route_id, detail. Each is read by an index that holds little else:
# the open intents; the open checks; what contradicts itself; what was asked to close; what arrived since.

# One look per open intent, at what the audit calls `open_nowhere`, and at intents without any attempt.
UNATTEMPTED: Final = """
SELECT i.id, i.accepted_at AS at, i.event_id, i.id AS intent_id, last.id AS attempt_id, NULL::uuid AS receipt_id,
       last.route_id, coalesce('last attempt ' || last.state, 'no attempt') AS detail
FROM intent i
LEFT JOIN LATERAL (SELECT a.id, a.state, a.route_id, a.next_check_at FROM attempt a WHERE a.intent_id = i.id
                   ORDER BY a.ordinal DESC LIMIT 1) last ON true
WHERE i.tenant_id = %(tenant)s AND i.closed_at IS NULL AND last.next_check_at IS NULL
  AND NOT EXISTS (SELECT FROM outbox o WHERE o.intent_id = i.id AND o.attempt_id = last.id)
  AND NOT EXISTS (SELECT FROM review r WHERE r.intent_id = i.id AND r.settled_at IS NULL)
"""

# A prepared attempt's check is its deadline, seconds ahead: what is checked later is none of these.
PREPARED: Final = """
SELECT a.id, a.prepared_at AS at, a.event_id, a.intent_id, a.id AS attempt_id, NULL::uuid AS receipt_id, a.route_id,
       CASE WHEN a.next_check_at <= %(now)s THEN 'past its deadline' ELSE 'on its way' END AS detail
FROM attempt a
WHERE a.tenant_id = %(tenant)s AND a.next_check_at <= %(now)s + interval '5 minutes' AND a.state = 'prepared'
  AND NOT EXISTS (SELECT FROM remote_id r WHERE r.attempt_id = a.id)
"""

UNCHECKED: Final = """
SELECT a.id, a.next_check_at AS at, a.event_id, a.intent_id, a.id AS attempt_id, NULL::uuid AS receipt_id, a.route_id,
       a.state || CASE WHEN a.horizon_at <= %(now)s THEN ', at its horizon' ELSE '' END AS detail
FROM attempt a
WHERE a.tenant_id = %(tenant)s AND a.next_check_at <= %(now)s AND a.state IN ('submitted', 'unknown')
"""

# An error class, once known, is not erased: what was delivered and has one was told both.
CONTRADICTED: Final = """
SELECT a.id, a.ended_at AS at, a.event_id, a.intent_id, a.id AS attempt_id, NULL::uuid AS receipt_id, a.route_id,
       'delivered, and failed: ' || a.error_class AS detail
FROM attempt a
WHERE a.tenant_id = %(tenant)s AND a.id >= %(since_id)s AND a.state = 'delivered' AND a.error_class IS NOT NULL
UNION ALL
SELECT o.id, o.observed_at, o.event_id, o.intent_id, o.attempt_id, o.receipt_id, a.route_id, 'a second id, by ' || o.source
FROM observation o JOIN attempt a ON a.id = o.attempt_id
WHERE o.tenant_id = %(tenant)s AND o.id >= %(since_id)s AND o.conflict
"""

# A close that came too late is kept as a request. What was closed before it left and was heard of all
# the same (a restored ledger) has a transition away from `cancelled`.
CANCELLED_DELIVERED: Final = """
SELECT a.id, i.close_requested_at AS at, i.event_id, i.id AS intent_id, a.id AS attempt_id, NULL::uuid AS receipt_id, a.route_id,
       'asked to close: ' || i.close_request AS detail
FROM intent i JOIN attempt a ON a.intent_id = i.id AND a.state = 'delivered'
WHERE i.tenant_id = %(tenant)s AND i.id >= %(since_id)s AND i.close_requested_at IS NOT NULL
UNION ALL
SELECT t.id, t.at, t.event_id, t.intent_id, t.attempt_id, NULL::uuid, a.route_id, 'cancelled before it left'
FROM transition t JOIN attempt a ON a.id = t.attempt_id AND a.state = 'delivered'
WHERE t.tenant_id = %(tenant)s AND t.id >= %(since_id)s AND t.from_state = 'cancelled'
"""

# Without those that have got an intent of their own since.
JOINED: Final = """
SELECT DISTINCT ON (j.event_id) j.event_id AS id, j.joined_at AS at, j.event_id, j.intent_id, NULL::uuid AS attempt_id,
       NULL::uuid AS receipt_id, NULL::uuid AS route_id, 'joined one that is ' || i.state AS detail
FROM joining j JOIN intent i ON i.id = j.intent_id
WHERE j.tenant_id = %(tenant)s AND j.event_id >= %(since_id)s
  AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = j.event_id AND own.channel = j.channel)
ORDER BY j.event_id, j.channel
"""

RECEIPTS: Final = """
SELECT x.id, x.received_at AS at, a.event_id, a.intent_id, x.attempt_id, x.id AS receipt_id, x.route_id,
       coalesce(nullif(x.reports -> 0 ->> 'state', ''), 'no report') || ', repeated ' || x.repeat_count AS detail
FROM receipt x LEFT JOIN attempt a ON a.id = x.attempt_id
WHERE x.tenant_id = %(tenant)s AND x.received_at >= %(since)s AND x.status = {status}
"""
UNMATCHED: Final = RECEIPTS.format(status="'unmatched'")
QUARANTINED: Final = RECEIPTS.format(status="'quarantined'")

# At most a thousand per route are kept.
REFUSED: Final = """
SELECT x.id, x.received_at AS at, NULL::uuid AS event_id, NULL::uuid AS intent_id, NULL::uuid AS attempt_id, x.id AS receipt_id,
       x.route_id, x.cause AS detail
FROM route r JOIN refused_receipt x ON x.route_id = r.id
WHERE r.tenant_id = %(tenant)s AND x.received_at >= %(since)s
"""

STATEMENTS: Final = {
    View.UNATTEMPTED: UNATTEMPTED,
    View.PREPARED: PREPARED,
    View.UNCHECKED: UNCHECKED,
    View.CONTRADICTED: CONTRADICTED,
    View.CANCELLED_DELIVERED: CANCELLED_DELIVERED,
    View.JOINED: JOINED,
    View.UNMATCHED: UNMATCHED,
    View.QUARANTINED: QUARANTINED,
    View.REFUSED: REFUSED,
}

# An event counts once for what is at stake, however many rows speak of it.
SUMMARY: Final = """
WITH found AS MATERIALIZED ({view})
SELECT count(*) AS count, min(at) AS oldest_at,
       (SELECT coalesce(json_agg(json_build_object('count', s.count, 'unit', s.unit) ORDER BY s.unit), '[]')
        FROM (SELECT e.stake ->> 'unit' AS unit, sum((e.stake ->> 'count')::numeric) AS count
              FROM event e WHERE e.stake IS NOT NULL AND e.id IN (SELECT event_id FROM found) GROUP BY 1) s) AS stake
FROM found
"""

PAGE: Final = """
SELECT v.*, r.name AS route, e.type, e.subject, e.recipient_ref, e.stake
FROM (SELECT * FROM ({view}) u WHERE %(after)s::uuid IS NULL OR u.id > %(after)s ORDER BY u.id LIMIT %(limit)s) v
LEFT JOIN event e ON e.id = v.event_id LEFT JOIN route r ON r.id = v.route_id
ORDER BY v.id
"""

SHOWN_FOR: Final = timedelta(days=30)
"""How far back what happened once is shown, unless somebody asks for more."""


@dataclass(frozen=True, slots=True)
class Summary:
    """How much a view holds, since when, and what is at stake."""

    view: View
    count: int
    oldest_at: datetime | None
    oldest_for: timedelta | None
    stake: Sequence[Mapping[str, Any]]
    """By unit: `{"count": 3, "unit": "seat"}`."""


def summarise(session: Session, views: Sequence[View], *, tenant_id: UUID, since: datetime, now: datetime) -> list[Summary]:
    """Count what these views hold of a tenant's."""
    params = _params(tenant_id, since, now)
    found = run_together(session, [(SUMMARY.format(view=STATEMENTS[view]), params) for view in views])
    return [_summary(view, row, now) for view, (row,) in zip(views, found, strict=True)]


def read_view(
    session: Session, view: View, *, tenant_id: UUID, since: datetime, after: UUID | None, limit: int, now: datetime
) -> list[Any]:
    """Read a page of a view's rows, in the order of their ids, after the one that a page ended with."""
    statement = PAGE.format(view=STATEMENTS[view])
    return rows(session, statement, **_params(tenant_id, since, now), after=after, limit=limit)


def _summary(view: View, row: Any, now: datetime) -> Summary:  # noqa: ANN401 - a row of SUMMARY
    oldest_for = max(now - row.oldest_at, timedelta()) if row.oldest_at is not None else None
    return Summary(view, row.count, row.oldest_at, oldest_for, row.stake)


def _params(tenant_id: UUID, since: datetime, now: datetime) -> dict[str, object]:
    return {"tenant": tenant_id, "since": since, "since_id": lowest_id(since), "now": now}
