"""Examine a Daybook at work: what is stuck, since when, and what to do about it. Nothing to say means healthy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit.check import lowest_id
from app.ledger.brakes import HOLDS


class Severity(StrEnum):
    """How soon somebody should look."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Symptom:
    """One thing that is not as it should be."""

    code: str
    severity: Severity
    words: str
    count: int
    oldest_at: datetime | None
    age: timedelta | None
    what_to_do: str


@dataclass(frozen=True, slots=True)
class _Look:
    """One look at the books: rows of label, count and oldest_at are symptoms, no rows are none."""

    code: str
    severity: Severity
    words: str
    """{label} and {count} are filled in."""
    what_to_do: str
    sql: str


# What a brake holds is named with the brake, not as work that nobody does.
HELD: Final = f"""
EXISTS (SELECT FROM pause p
        WHERE p.ended_at IS NULL AND ((p.route_id = o.route_id AND p.country IS NULL) OR ({HOLDS})))
"""

NO_POLICY = """
SELECT t.name AS label, 1 AS count, (SELECT max(v.effective_until) FROM policy_version v
                                     WHERE v.tenant_id = t.id AND v.effective_until <= %(now)s) AS oldest_at
FROM tenant t
WHERE coalesce((SELECT coalesce(v.effective_until <= %(now)s, false) FROM policy_version v  -- the last to start stands
                WHERE v.tenant_id = t.id AND v.effective_from <= %(now)s ORDER BY v.effective_from DESC LIMIT 1), true)
ORDER BY t.name
"""

BRAKES = f"""
SELECT concat_ws(', ', 'tenant ' || t.name, 'route ' || r.name, 'lane ' || p.lane, 'category ' || p.category,
                 'country ' || p.country) AS label,
       (SELECT count(*) FROM outbox o WHERE {HOLDS}) AS count,
       p.started_at AS oldest_at, p.started_by, p.cause, %(now)s - p.started_at AS age
FROM pause p JOIN tenant t ON t.id = p.tenant_id LEFT JOIN route r ON r.id = p.route_id
WHERE p.ended_at IS NULL AND {{which}} ORDER BY p.started_at
"""  # noqa: S608 - put together from a constant of our own

LATE = f"""
SELECT o.lane AS label, count(*) AS count, min(o.due_at) AS oldest_at
FROM outbox o WHERE o.claimable_at <= %(now)s AND o.due_at <= %(now)s - interval '1 minute' AND NOT {HELD}
GROUP BY o.lane ORDER BY o.lane
"""  # noqa: S608 - put together from the constant above

LEASES_LOST = """
SELECT o.lane AS label, count(*) AS count, min(o.leased_until) AS oldest_at
FROM outbox o WHERE o.lost_lease_count > 0 AND o.due_at < 'infinity' GROUP BY o.lane ORDER BY o.lane
"""

PARKED = """
SELECT coalesce(o.reason, 'unknown') AS label, count(*) AS count, min(r.opened_at) AS oldest_at
FROM outbox o LEFT JOIN review r ON r.attempt_id = o.attempt_id AND r.settled_at IS NULL
WHERE o.due_at = 'infinity' GROUP BY 1 ORDER BY 1
"""

REVIEWS = """
SELECT v.cause || coalesce(' on route ' || r.name, '') AS label, count(*) AS count, min(v.opened_at) AS oldest_at
FROM review v LEFT JOIN route r ON r.id = v.route_id WHERE v.settled_at IS NULL GROUP BY 1 ORDER BY 1
"""

PREPARED_LATE = """
SELECT r.name AS label, count(*) AS count, min(a.next_check_at) AS oldest_at
FROM attempt a JOIN route r ON r.id = a.route_id
WHERE a.state = 'prepared' AND a.next_check_at <= %(now)s - interval '30 seconds' GROUP BY r.name ORDER BY r.name
"""

UNKNOWN = """
SELECT r.name AS label, count(*) AS count, min(a.prepared_at) AS oldest_at
FROM attempt a JOIN route r ON r.id = a.route_id
WHERE a.state = 'unknown' AND a.next_check_at IS NOT NULL GROUP BY r.name ORDER BY r.name
"""

CHECKS_OVERDUE = """
SELECT r.name AS label, count(*) AS count, min(a.next_check_at) AS oldest_at
FROM attempt a JOIN route r ON r.id = a.route_id
WHERE a.state IN ('submitted', 'unknown') AND a.next_check_at <= %(now)s - interval '2 minutes' GROUP BY r.name ORDER BY r.name
"""

# By a range of ids where no index leads to what has this status: what is a day old was told a day long.
RECEIPTS = """
SELECT coalesce(r.name, 'unknown') AS label, count(*) AS count, min(x.received_at) AS oldest_at
FROM receipt x LEFT JOIN route r ON r.id = x.route_id WHERE {which} GROUP BY 1 ORDER BY 1
"""
UNMATCHED = RECEIPTS.format(which="x.status = 'unmatched' AND x.received_at <= %(now)s - interval '1 minute'")
WAITING = RECEIPTS.format(which="x.status = 'waiting' AND x.received_at <= %(now)s - interval '30 seconds'")
QUARANTINED = RECEIPTS.format(which="x.status = 'quarantined' AND x.id >= %(day_id)s")

REFUSED_RECEIPTS = """
SELECT coalesce(r.name, 'unknown') || ' (' || x.cause || ')' AS label, count(*) AS count, min(x.received_at) AS oldest_at
FROM refused_receipt x LEFT JOIN route r ON r.id = x.route_id
WHERE x.received_at > %(now)s - interval '1 day' GROUP BY 1 ORDER BY 1
"""

# What people wrote. A day's worth, by a range of ids: they are made when a text comes in.
TEXTS = """
SELECT t.name AS label, count(*) AS count, min(n.received_at) AS oldest_at
FROM inbound n JOIN tenant t ON t.id = n.tenant_id WHERE {which} GROUP BY t.name ORDER BY t.name
"""
TEXTS_WAITING = TEXTS.format(which="n.status = 'waiting' AND n.received_at <= %(now)s - interval '30 seconds'")
TEXTS_QUARANTINED = TEXTS.format(which="n.status = 'quarantined' AND n.id >= %(day_id)s")
TEXTS_TO_READ = TEXTS.format(which="n.review AND n.status = 'acted' AND n.id >= %(day_id)s")
UNCONFIRMED = TEXTS.format(which="n.confirmation = 'no_template' AND n.id >= %(day_id)s")

CARRIER_BLOCKS = """
SELECT t.name AS label, count(DISTINCT l.address_hash) AS count, min(l.at) AS oldest_at
FROM suppression l JOIN tenant t ON t.id = l.tenant_id
WHERE l.act = 'lift' AND l.id >= %(day_id)s
  AND EXISTS (SELECT FROM suppression p WHERE p.id = ANY(l.lifts) AND p.source = 'carrier')
GROUP BY t.name ORDER BY t.name
"""

INLET_WAITING = """
SELECT tenant AS label, count(*) AS count, min(created_at) AS oldest_at
FROM inlet WHERE status = 'waiting' AND created_at <= %(now)s - interval '30 seconds' GROUP BY tenant ORDER BY tenant
"""

INLET_REFUSED = """
SELECT tenant AS label, count(*) AS count, min(done_at) AS oldest_at
FROM inlet WHERE status = 'refused' AND done_at > %(now)s - interval '1 day' GROUP BY tenant ORDER BY tenant
"""

# The lowest id stands for the oldest: both are made together, and one look-up is enough.
FEED_LAG = """
SELECT 'feed' AS label, (SELECT count(*) FROM feed_pending) AS count, t.at AS oldest_at
FROM transition t WHERE t.id = (SELECT transition_id FROM feed_pending ORDER BY transition_id LIMIT 1)
                    AND t.at <= %(now)s - interval '10 seconds'
"""

BEAT_SILENT = """
SELECT 'beat' AS label, 1 AS count, (SELECT at FROM heartbeat WHERE name = 'beat') AS oldest_at
WHERE coalesce((SELECT at FROM heartbeat WHERE name = 'beat') <= %(now)s - interval '10 seconds', true)
"""

C, W, N = Severity.CRITICAL, Severity.WARNING, Severity.NOTICE
LOOKS: Final = (
    _Look(
        "no_policy",
        C,
        "tenant {label} has no policy version in force: everything of it waits",
        "publish a version that is in force now",
        NO_POLICY,
    ),
    _Look(
        "route_stopped",
        C,
        "stopped after a refused login ({label}); rows held: {count}",
        "set it right at the carrier or make a new route (routes never change), then `daybook resume --route NAME --reason …`",
        BRAKES.format(which="p.cause = 'auth_config' AND p.route_id IS NOT NULL"),
    ),
    _Look(
        "breaker_tripped",
        C,
        "spent more in an hour than the policy allows ({label}); rows held: {count}",
        "see what is being sent and to whom, then `daybook resume --route NAME --country XX --reason …`",
        BRAKES.format(which="p.cause = 'spend_breaker' AND p.route_id IS NOT NULL"),
    ),
    _Look(
        "beat_silent",
        C,
        "no periodic task has run for a while",
        "see that beat and a worker of the queue `sweeps` run, and that the broker answers",
        BEAT_SILENT,
    ),
    _Look(
        "late",
        W,
        "lane {label}: {count} due for more than a minute and not leased",
        "scale the lane's workers, or raise the route's rate",
        LATE,
    ),
    _Look(
        "leases_lost",
        W,
        "lane {label}: {count} whose workers went away while they had them",
        "look at the workers' log",
        LEASES_LOST,
    ),
    _Look(
        "parked",
        W,
        "{count} parked ({label}): nobody may claim them",
        "`daybook trace` says what happened; `daybook review settle` lets them go, or gives them up",
        PARKED,
    ),
    _Look(
        "reviews_open",
        W,
        "{count} open reviews: {label}",
        "`daybook review list --each`, `daybook trace` says what is known, `daybook review settle`",
        REVIEWS,
    ),
    _Look(
        "prepared_late",
        W,
        "route {label}: {count} prepared, past their deadline, and not yet put in doubt",
        "see that the queue `sweeps` has a worker",
        PREPARED_LATE,
    ),
    _Look(
        "checks_overdue",
        W,
        "route {label}: {count} whose next check is overdue",
        "see that the queue `sweeps` has a worker, and that the carrier answers",
        CHECKS_OVERDUE,
    ),
    _Look(
        "receipts_waiting",
        W,
        "route {label}: {count} receipts kept and not yet observed",
        "see that the queue `sweeps` has a worker",
        WAITING,
    ),
    _Look(
        "receipts_refused",
        W,
        "route {label}: {count} receipt calls of the last day did not verify",
        "compare the route's secret and public URL with the carrier's settings; then `daybook receipt replay`",
        REFUSED_RECEIPTS,
    ),
    _Look(
        "receipts_quarantined",
        W,
        "route {label}: {count} receipts of the last day could not be used",
        "tell the maintainers of the adapter",
        QUARANTINED,
    ),
    _Look(
        "texts_waiting",
        W,
        "tenant {label}: {count} texts of people kept and not yet acted on",
        "see that the queue `sweeps` has a worker; the log says what refuses them",
        TEXTS_WAITING,
    ),
    _Look(
        "texts_quarantined",
        W,
        "tenant {label}: {count} texts of people of the last day could not be used, or name no number",
        "read them (`GET /v1/inbound`); tell the maintainers of the adapter",
        TEXTS_QUARANTINED,
    ),
    _Look(
        "confirmation_missing",
        W,
        "tenant {label}: {count} opt-outs of the last day were not confirmed: there is no template `opt-out-confirmation`",
        "publish one, or set `opt_out_confirmation` to `carrier` on a route whose carrier answers",
        UNCONFIRMED,
    ),
    _Look(
        "inlet_waiting", W, "tenant {label}: {count} wait in the inlet", "see that the queue `sweeps` has a worker", INLET_WAITING
    ),
    _Look(
        "feed_lag", W, "{count} transitions have no place in the feed yet", "see that the queue `sweeps` has a worker", FEED_LAG
    ),
    _Look(
        "paused",
        N,
        "paused ({label}); rows held: {count}",
        "`daybook resume` on the same scope when it is safe",
        BRAKES.format(which="NOT (p.cause IN ('auth_config', 'spend_breaker') AND p.route_id IS NOT NULL)"),
    ),
    _Look(
        "unknown",
        N,
        "route {label}: nobody knows yet whether the carrier took {count}",
        "wait for receipt, poll or look-up; none of them is tried again meanwhile",
        UNKNOWN,
    ),
    _Look(
        "receipts_unmatched",
        N,
        "route {label}: {count} receipts match no attempt",
        "nothing, unless another program sends through the same account",
        UNMATCHED,
    ),
    _Look(
        "texts_to_read",
        N,
        "tenant {label}: {count} texts of the last day may ask for more than they were matched to",
        "read those with `review` in `GET /v1/inbound`",
        TEXTS_TO_READ,
    ),
    _Look(
        "carrier_may_block",
        N,
        "tenant {label}: {count} people of the last day are contacted again whom a carrier had blocked",
        "see at the carrier that it has let them go as well: only it can",
        CARRIER_BLOCKS,
    ),
    _Look(
        "inlet_refused",
        N,
        "tenant {label}: {count} inlet rows of the last day were refused",
        "`daybook inlet` shows their errors",
        INLET_REFUSED,
    ),
)

# What was in doubt for longer than a carrier usually needs to tell is no longer only a notice.
UNKNOWN_FOR: Final = timedelta(minutes=15)


def examine(session: Session, *, now: datetime) -> Sequence[Symptom]:
    """Name what is not as it should be, the gravest first; empty when all is well."""
    params = {"now": now, "day_id": lowest_id(now - timedelta(days=1))}
    found = [_symptom(look, row, now) for look in LOOKS for row in rows(session, look.sql, **params)]
    order = list(Severity)
    return sorted(found, key=lambda symptom: order.index(symptom.severity))


def list_brakes(session: Session, *, tenant_id: UUID, now: datetime) -> list[Any]:
    """List which of a tenant's brakes are on, and how many rows each holds."""
    return rows(session, BRAKES.format(which="p.tenant_id = %(tenant)s"), tenant=tenant_id, now=now)


def _symptom(look: _Look, row: object, now: datetime) -> Symptom:
    label, count, oldest_at = getattr(row, "label"), getattr(row, "count"), getattr(row, "oldest_at")  # noqa: B009 - a row has no type
    age = max(now - oldest_at, timedelta()) if oldest_at is not None else None
    aged = look.code == "unknown" and age is not None and age > UNKNOWN_FOR
    severity = Severity.WARNING if aged else look.severity
    return Symptom(look.code, severity, look.words.format(label=label, count=count), count, oldest_at, age, look.what_to_do)
