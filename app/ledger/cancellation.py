"""Cancel an occasion: close what waits in pages, then cut, alone with the occasion, so that the counts are of one moment.

Every page is a close like any other, and so is one that was the last because the process died. What
makes them one cancellation is the cut: what is accepted after it commits is contacted, what was
accepted before is closed or told of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg import errors
from sqlalchemy.orm import Session

from app.ground.db import Raced, as_json, insertion, rows, run_together
from app.ground.errors import DaybookError
from app.ledger import occasion
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents, was_taken
from models.cancel import Cancellation
from policy.words import NOT_TAKEN, Found

BY_KEY = "SELECT id, type, subject, excepted, reason FROM cancellation WHERE tenant_id = %(tenant)s AND key = %(key)s"

GET = """
SELECT id, tenant_id, type, subject, excepted, reason, actor, action_id, begun_at, cut_at, cancelled_count, handed_off_count,
       joined_count, closed_count, excepted_count
FROM cancellation WHERE id = %(id)s AND tenant_id = %(tenant)s
"""
LOCK = "SELECT cut_at FROM cancellation WHERE id = %(id)s FOR UPDATE"

# What is open and not dealt with yet, and what was, but was joined since: should it close without a handoff,
# the event that joined must not follow it. Read without a lock: the page locks, and looks again.
WAITING = """
SELECT i.id FROM event e JOIN intent i ON i.event_id = e.id
WHERE e.tenant_id = %(tenant)s AND e.type = %(type)s AND e.subject = %(subject)s AND i.closed_at IS NULL
  AND e.recipient_ref <> ALL(%(excepted)s::text[])
  AND (NOT EXISTS (SELECT FROM cancelled c WHERE c.cancellation_id = %(id)s AND c.event_id = e.id AND c.channel = i.channel)
       OR EXISTS (SELECT FROM joining j
                  WHERE j.intent_id = i.id
                    AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = j.event_id AND own.channel = j.channel)
                    AND NOT EXISTS (SELECT FROM cancelled c WHERE c.cancellation_id = %(id)s AND c.event_id = j.event_id
                                      AND c.channel = j.channel)))
ORDER BY i.id
"""

# Before the intents of the page close: what waits to get their business keys must not get them. Whoever
# joins holds the intent that it joins, so under its lock nobody is missing here.
FIND_JOINED = """
INSERT INTO cancelled (cancellation_id, event_id, channel, tenant_id, intent_id, found)
SELECT %(id)s::uuid, e.id, j.channel, e.tenant_id, j.intent_id, 'joined'
FROM intent i
JOIN event e ON e.tenant_id = i.tenant_id AND e.business_key = i.business_key
JOIN joining j ON j.event_id = e.id AND j.channel = i.channel
WHERE i.id = ANY(%(intents)s::uuid[])
  AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = e.id AND own.channel = j.channel)
ORDER BY e.id
ON CONFLICT DO NOTHING
"""

FIND = """
INSERT INTO cancelled (cancellation_id, event_id, channel, tenant_id, intent_id, found)
SELECT %(id)s::uuid, n.event_id, n.channel, %(tenant)s::uuid, n.intent_id, n.found
FROM json_to_recordset(%(new)s::json) AS n (event_id uuid, channel text, intent_id uuid, found text)
ORDER BY n.event_id
ON CONFLICT DO NOTHING
"""

# What is left: excepted, joined, or closed before. What is closed stays so, and may be found ahead of the
# cut; what may still be joined or opened is found in it.
FIND_REST = """
INSERT INTO cancelled (cancellation_id, event_id, channel, tenant_id, intent_id, found)
SELECT %(id)s::uuid, e.id, x.channel, e.tenant_id, x.intent_id,
       CASE WHEN e.recipient_ref = ANY(%(excepted)s::text[]) THEN 'excepted' WHEN x.joined THEN 'joined'
            WHEN EXISTS (SELECT FROM attempt a
                         WHERE a.intent_id = x.intent_id AND a.state NOT IN ('queued', 'suppressed', 'expired', 'cancelled')
                           AND (a.taken OR coalesce(a.error_class, '') <> ALL(%(not_taken)s::text[])))
            THEN 'handed_off' ELSE 'closed' END
FROM event e CROSS JOIN LATERAL (
    SELECT i.channel, i.id AS intent_id, false AS joined, i.closed_at IS NOT NULL AS closed FROM intent i WHERE i.event_id = e.id
    UNION ALL
    SELECT j.channel, j.intent_id, true, false FROM joining j
    WHERE j.event_id = e.id AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = e.id AND own.channel = j.channel)) x
WHERE e.tenant_id = %(tenant)s AND e.type = %(type)s AND e.subject = %(subject)s AND (x.closed OR %(cut)s)
  AND NOT EXISTS (SELECT FROM cancelled c WHERE c.cancellation_id = %(id)s AND c.event_id = e.id AND c.channel = x.channel)
ORDER BY e.id
ON CONFLICT DO NOTHING
"""

CUT = """
UPDATE cancellation SET cut_at = %(now)s, cancelled_count = f.cancelled, handed_off_count = f.handed_off,
       joined_count = f.joined, closed_count = f.closed, excepted_count = f.excepted
FROM (SELECT count(*) FILTER (WHERE found = 'cancelled') AS cancelled, count(*) FILTER (WHERE found = 'handed_off') AS handed_off,
             count(*) FILTER (WHERE found = 'joined') AS joined, count(*) FILTER (WHERE found = 'closed') AS closed,
             count(*) FILTER (WHERE found = 'excepted') AS excepted
      FROM cancelled WHERE cancellation_id = %(id)s) f
WHERE id = %(id)s AND cut_at IS NULL
"""

PAGE: Final = 500
"""Intents that are closed in one transaction: their locks are held for a fraction of a second."""


class KeyReused(DaybookError):
    """The key was used for another cancellation."""


class NoSuchCancellation(DaybookError):
    """The tenant has no cancellation of this id."""


@dataclass(frozen=True, slots=True)
class Occasion:
    """What is called off: everything of one type and subject, but for some people."""

    type: str
    subject: str
    excepted: tuple[str, ...] = ()
    """Refs of recipients, sorted, each once."""


def find_by_key(session: Session, *, tenant_id: UUID, key: str | None, asked: Occasion, reason: str) -> UUID | None:
    """Find the cancellation that was begun under a key; KeyReused when it asked for something else."""
    found = rows(session, BY_KEY, tenant=tenant_id, key=key)
    if not found:
        return None
    before = found[0]
    if (Occasion(before.type, before.subject, tuple(before.excepted)), before.reason) != (asked, reason):
        raise KeyReused("this key was used for another cancellation")
    cancellation_id: UUID = before.id
    return cancellation_id


def begin(session: Session, row: Mapping[str, object]) -> None:
    """Keep that a cancellation has begun; Raced when another of its key was first."""
    counts = dict.fromkeys(("cut_at", *(f"{found}_count" for found in Found)))
    try:
        run_together(session, [insertion(Cancellation, [{**row, **counts}])])
    except errors.UniqueViolation as error:
        raise Raced("another cancellation with this key was first") from error


def get(session: Session, *, tenant_id: UUID, cancellation_id: UUID) -> Any:  # noqa: ANN401 - a row of GET
    """Read one cancellation; NoSuchCancellation when the tenant has none of this id."""
    found = rows(session, GET, tenant=tenant_id, id=cancellation_id)
    if not found:
        raise NoSuchCancellation("no such cancellation")
    return found[0]


def waiting(session: Session, row: Any) -> list[UUID]:  # noqa: ANN401 - a row of GET
    """List the open intents that a cancellation has not dealt with, in the order of the locks."""
    return [found.id for found in rows(session, WAITING, **_scope(row))]


def close_page(session: Session, row: Any, intent_ids: Sequence[UUID], *, now: datetime) -> None:  # noqa: ANN401 - a row of GET
    """Close these intents of an occasion, and write down what was found of each; those that left keep a request."""
    books = lock_books(session, intent_ids)
    still_open = [i for i, intent in books.intents.items() if intent.closed_at is None]
    run_together(session, [(FIND_JOINED, {"id": row.id, "intents": still_open})])
    cancel_intents(session, books, still_open, cause_id=row.action_id, now=now)
    new = [
        {
            "event_id": books.intents[i].event_id,
            "channel": books.intents[i].channel,
            "intent_id": i,
            "found": Found.HANDED_OFF if any(was_taken(a) for a in books.attempts_of(i)) else Found.CANCELLED,
        }
        for i in still_open
    ]
    run_together(session, [(FIND, {"id": row.id, "tenant": row.tenant_id, "new": as_json(new)})])


def find_closed(session: Session, row: Any) -> None:  # noqa: ANN401 - a row of GET
    """Write down what had been closed before, ahead of the cut."""
    run_together(session, [(FIND_REST, _rest(row, cut=False))])


def cut(session: Session, row: Any, *, now: datetime) -> None:  # noqa: ANN401 - a row of GET
    """End a cancellation, alone with its occasion: nobody accepts for it before this commits.

    Nothing joins any more, and what joined before is written down under the lock of the intent that it
    joined: whoever closes that one before we have the lock opens another that the next look finds, and
    whoever does later opens none.
    """
    run_together(session, [occasion.alone(row.tenant_id, (row.type, row.subject))])
    if rows(session, LOCK, id=row.id)[0].cut_at is not None:
        return
    while left := waiting(session, row):
        for start in range(0, len(left), PAGE):
            close_page(session, row, left[start : start + PAGE], now=now)
    run_together(session, [(FIND_REST, _rest(row, cut=True)), (CUT, {"id": row.id, "now": now})])


def _scope(row: Any) -> dict[str, object]:  # noqa: ANN401 - a row of GET
    return {"id": row.id, "tenant": row.tenant_id, "type": row.type, "subject": row.subject, "excepted": row.excepted}


def _rest(row: Any, *, cut: bool) -> dict[str, object]:  # noqa: ANN401 - a row of GET
    return _scope(row) | {"cut": cut, "not_taken": sorted(NOT_TAKEN)}
