"""Claim a page of due attempts by lane and route, decide each again, and lease what may go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app import limits
from app.ground.config import settings
from app.ground.db import Tx, as_page, rows, transact
from app.ground.ids import AttemptId, Lease
from app.ground.log import log
from app.ledger.books import claim_books
from app.ledger.brakes import HOLDS
from app.ledger.redecide import Held, redecide
from app.ledger.review import park
from app.limits import Terms
from policy.rates import Rate
from policy.words import Lane, Reason

# Where rows are due in this lane, and how much of it is out on lease already: a leased row is
# claimable again within one lease, so the index is read no further than that. What was leased just
# now has yet to take its tokens; what was leased longer ago may have lost its worker. The first due
# row of each route, and not EXISTS, which becomes a join that visits the dead rows of all routes.
DUE_ROUTES = """
SELECT r.id, r.rate_per_second, r.burst_count, l.leased_count, l.fresh_count
FROM route r LEFT JOIN dispatch_floor f ON f.lane = %(lane)s AND f.route_id = r.id
     CROSS JOIN LATERAL (
         SELECT count(*) AS leased_count,
                count(*) FILTER (WHERE o.leased_until > %(lease_end)s - interval '3 seconds') AS fresh_count
         FROM outbox o
         WHERE o.lane = %(lane)s AND o.route_id = r.id AND o.claimable_at > %(now)s AND o.claimable_at <= %(lease_end)s
           AND o.leased_until > %(now)s) l
WHERE (SELECT o.claimable_at FROM outbox o
       WHERE o.lane = %(lane)s AND o.route_id = r.id AND o.claimable_at <= %(now)s
         AND o.claimable_at >= coalesce(f.floor_at, '-infinity')
       ORDER BY o.claimable_at LIMIT 1) IS NOT NULL
  AND NOT EXISTS (SELECT FROM pause p WHERE p.ended_at IS NULL AND p.route_id = r.id AND p.country IS NULL)
ORDER BY r.id
"""

# Candidates without a lock. What is claimable was due before now, so the index is read from the
# floor to now and never past a row that waits.
CANDIDATES = f"""
SELECT o.attempt_id, o.intent_id, o.claimable_at, o.lost_lease_count, o.leased_until
FROM outbox o
WHERE o.lane = %(lane)s AND o.route_id = %(route)s AND o.claimable_at <= %(now)s
  AND o.claimable_at >= coalesce((SELECT floor_at FROM dispatch_floor f WHERE f.lane = %(lane)s AND f.route_id = %(route)s),
                                 '-infinity')
  AND NOT EXISTS (SELECT FROM pause p WHERE p.ended_at IS NULL AND {HOLDS})
ORDER BY o.claimable_at, o.attempt_id LIMIT %(limit)s
"""  # noqa: S608 - put together from a constant of our own

# One number per page, and with it the decision in force, as it was held or taken just now.
LEASES = "SELECT nextval('lease') AS lease FROM generate_series(1, %(count)s)"
LEASE = """
UPDATE outbox o SET lease = n.lease, leased_until = %(until)s, reason = NULL,
       decision_id = n.decision_id, gate_seen_at = n.gate_seen_at, held_at = %(now)s,
       lost_lease_count = o.lost_lease_count + (o.leased_until IS NOT NULL)::int
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (attempt_id uuid, lease bigint, decision_id uuid, gate_seen_at timestamptz) LIMIT %(count)s) n
WHERE o.attempt_id = n.attempt_id
"""

# The floor stays behind the clock: an acceptance that took its `now` a while ago may commit rows
# that were due then. The reconcile sweep looks below it all the same.
RAISE_FLOOR = """
INSERT INTO dispatch_floor (lane, route_id, floor_at) VALUES (%(lane)s, %(route)s, %(floor)s)
ON CONFLICT (lane, route_id) DO UPDATE SET floor_at = excluded.floor_at
"""

# The Procfile's default, and the carriers' read time-out. More processes only drain the queue faster.
PROCESSES: Final = 2
SLOWEST_ANSWER_SECONDS: Final = 8.0
FLOOR_LAG: Final = timedelta(seconds=60)
ON_ITS_WAY_SECONDS: Final = 0.25
"""How long a page takes to a worker that is free; the bucket goes on filling meanwhile."""
SINGLE_AFTER: Final = 2
PARK_AFTER: Final = 5


@dataclass(frozen=True, slots=True)
class Page:
    """Attempts leased together, to be handed off by whoever holds the lease."""

    lane: Lane
    route_id: UUID
    lease: Lease
    attempt_ids: tuple[AttemptId, ...]
    terms: Terms = field(default_factory=Terms)


def dispatch(lane: Lane) -> list[Page]:
    """Claim what is due in a lane, a page per route; return what was leased, for the queue."""
    lease_for = timedelta(seconds=settings().lease_seconds)
    routes = transact(lambda tx: rows(tx.session, DUE_ROUTES, lane=lane, now=tx.now, lease_end=tx.now + lease_for))
    pages: list[Page] = []
    for route in routes:
        room = _room(route.rate_per_second, route.leased_count)
        if room > 0 and (room := min(room, _tokens(route, lane) - route.fresh_count)) > 0:
            claimed = transact(partial(_claim, lane=lane, route_id=route.id, limit=room))
            pages += claimed.pages
            if claimed.first_at is not None:
                transact(partial(_raise_floor, lane=lane, route_id=route.id, first_at=claimed.first_at))
    return pages


def _room(rate_per_second: int, leased_count: int) -> int:
    """Say how many rows may be leased now, so that no lease runs out in the queue.

    At most what the route may send in a third of a lease, and what a lane's two task processes hand
    off in it even when every answer takes as long as it may. And at least a window, unless nothing
    is out: rows that trickle in one by one would fill the queue with pages of one.
    """
    third, window = settings().lease_seconds / 3, settings().window_count
    capacity = max(PROCESSES * window, int(PROCESSES * window * third / SLOWEST_ANSWER_SECONDS))
    room = min(settings().dispatch_page_count, capacity, max(1, int(rate_per_second * third))) - leased_count
    return room if room >= min(window, capacity) or leased_count == 0 else 0


def _tokens(route: Any, lane: Lane) -> int:  # noqa: ANN401 - a row of DUE_ROUTES
    """Say how many tokens this lane could take once a page is there: what finds none would be leased and put off in vain."""
    rate = Rate(route.rate_per_second, route.burst_count)
    try:
        return math.floor(limits.peek(limits.Bucket.of_route(route.id, rate, lane)) + rate.per_second * ON_ITS_WAY_SECONDS)
    except limits.LimitsUnreachable as error:
        log.warning("limits_unreachable", route_id=str(route.id), cause=str(error))
        return settings().dispatch_page_count  # who takes the tokens will say so on each row


@dataclass(frozen=True, slots=True)
class _Claimed:
    """What one claim leased, and when the first row it saw was claimable."""

    pages: list[Page]
    first_at: datetime | None


def _claim(tx: Tx, *, lane: Lane, route_id: UUID, limit: int) -> _Claimed:
    session, now = tx.session, tx.now
    found = rows(session, CANDIDATES, lane=lane, route=route_id, now=now, limit=limit)
    if not found:
        return _Claimed([], None)
    books = claim_books(session, [row.intent_id for row in found])
    lost = {row.attempt_id: row.lost_lease_count + (row.leased_until is not None) for row in found}
    # A row that was leased, put off, held or taken out since the candidates were read is not ours.
    ours = [
        row.attempt_id
        for row in found
        if (o := books.outbox.get(row.attempt_id)) and o.due_at is not None and max(o.due_at, o.leased_until or now) <= now
    ]
    parked = {i: Reason.LOST_LEASES for i in ours if lost[i] >= PARK_AFTER}
    if parked:
        park(session, books, parked, now=now)
    allowed = redecide(session, books, [i for i in ours if i not in parked], now=now)
    alone = [[h] for h in allowed if lost[h.attempt_id] >= SINGLE_AFTER]
    together = [h for h in allowed if lost[h.attempt_id] < SINGLE_AFTER]
    window = settings().window_count
    groups = alone + [together[i : i + window] for i in range(0, len(together), window)]
    return _Claimed(_lease(session, lane, route_id, groups, now=now), found[0].claimable_at)


def _raise_floor(tx: Tx, *, lane: Lane, route_id: UUID, first_at: datetime) -> None:
    # In a transaction of its own: two claims of one lane must not wait for each other here.
    rows(tx.session, RAISE_FLOOR, lane=lane, route=route_id, floor=min(first_at, tx.now - FLOOR_LAG))


def _lease(session: Session, lane: Lane, route_id: UUID, groups: Sequence[Sequence[Held]], *, now: datetime) -> list[Page]:
    if not groups:
        return []
    leases = [Lease(row.lease) for row in rows(session, LEASES, count=len(groups))]
    pages = list(zip(leases, groups, strict=True))
    until = now + timedelta(seconds=settings().lease_seconds)
    new = [
        {"attempt_id": h.attempt_id, "lease": n, "decision_id": h.decision_id, "gate_seen_at": h.gate_seen_at}
        for n, page in pages
        for h in page
    ]
    rows(session, LEASE, **as_page(new), until=until, now=now)
    return [Page(lane, route_id, n, tuple(AttemptId(h.attempt_id) for h in page), _terms(lane, page)) for n, page in pages]


def _terms(lane: Lane, page: Sequence[Held]) -> Terms:
    # A route is one tenant's, so that a page has one policy version.
    return Terms(lane, page[0].tenant_rate, {h.attempt_id: h.ask for h in page})
