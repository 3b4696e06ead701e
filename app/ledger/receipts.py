"""Keep a carrier's calls: refused ones apart, verified ones once, and find the attempt that each speaks of."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy.orm import Session

from app.carriers.base import Call, ReadReceipt, Report
from app.carriers.registry import open_carrier
from app.ground.db import insertion, rows, run_together
from app.ground.ids import AttemptId, ReceiptId, new_id
from app.ground.keys import same_bytes
from app.ledger.observe import Told
from app.ledger.routes import Route
from app.people.contacts import address_hash
from app.people.holding import holding_key
from app.people.vault import VaultKey, open_vault_key
from models.work import ReceiptRaw, RefusedReceipt
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Source

REFUSED_KEPT: Final = 1000
"""Refused calls kept per route: enough to replay an hour of a wrong secret, not a way to fill a disk."""

BY_REFERENCE = """
SELECT a.id, i.gate_hash, i.channel, e.person_key_id, k.wrapped_key
FROM attempt a JOIN intent i ON i.id = a.intent_id JOIN event e ON e.id = a.event_id JOIN person_key k ON k.id = e.person_key_id
WHERE a.route_id = %(route)s AND a.attempt_key = %(reference)s
"""

BY_REMOTE_ID = """
SELECT a.id, i.gate_hash, i.channel, e.person_key_id, k.wrapped_key
FROM remote_id r JOIN attempt a ON a.id = r.attempt_id JOIN intent i ON i.id = a.intent_id JOIN event e ON e.id = a.event_id
JOIN person_key k ON k.id = e.person_key_id
WHERE r.route_id = %(route)s AND r.remote_id = ANY(%(remote_ids)s::text[])
LIMIT 1
"""

# The carrier repeats calls until we answer well: the first is kept, the others are counted. One that
# matched nobody may match now: the answer that names the remote id can be slower than the receipt.
KEEP = """
INSERT INTO receipt (id, tenant_id, route_id, dedupe_key, attempt_id, reports, status, repeat_count, received_at)
VALUES (%(id)s, %(tenant)s, %(route)s, %(dedupe)s, %(attempt)s, %(reports)s::jsonb, %(status)s, 0, %(now)s)
ON CONFLICT (route_id, dedupe_key) DO UPDATE
SET repeat_count = receipt.repeat_count + 1, attempt_id = coalesce(receipt.attempt_id, excluded.attempt_id),
    status = CASE WHEN receipt.status = 'unmatched' THEN excluded.status ELSE receipt.status END
RETURNING id, status, repeat_count, attempt_id, reports
"""

PRUNE_REFUSED = """
DELETE FROM refused_receipt WHERE id IN (
    SELECT id FROM refused_receipt WHERE route_id = %(route)s ORDER BY received_at DESC, id DESC OFFSET %(kept)s)
"""

# Compare-and-set: handler, duplicate and reconcile alike observe what is not yet observed.
MARK_OBSERVED = """
UPDATE receipt SET status = 'observed', observed_at = %(now)s
WHERE id = ANY(%(ids)s::uuid[]) AND status IN ('waiting', 'unmatched')
"""

UNOBSERVED = """
SELECT id, attempt_id, reports FROM receipt
WHERE status = 'waiting' AND received_at <= %(before)s
  AND received_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'receipts')
ORDER BY received_at, id LIMIT %(limit)s
"""

# An unmatched receipt meets its attempt when the answer that names the remote id is stored after all.
MATCH_LATE = """
UPDATE receipt r SET attempt_id = i.attempt_id, status = 'waiting'
FROM remote_id i
WHERE r.status = 'unmatched' AND r.received_at > %(since)s
  AND r.received_at >= (SELECT coalesce(max(floor_at), '-infinity') FROM sweep_floor WHERE name = 'receipts')
  AND i.route_id = r.route_id AND i.remote_id = r.reports -> 0 ->> 'remote_id'
RETURNING r.id
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A receipt as it is kept."""

    id: ReceiptId
    status: str
    """waiting, observed, unmatched, quarantined or no_news."""
    duplicate: bool
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class _Match:
    attempt_id: UUID
    key: VaultKey


def keep_refused(session: Session, route: Route, call: Call, *, cause: str, now: datetime) -> None:
    """Keep a call that did not verify, apart from receipts and capped: it changes nothing."""
    key = holding_key(session, tenant_id=route.tenant_id, now=now)
    row = {
        "id": new_id(),
        "tenant_id": route.tenant_id,
        "route_id": route.id,
        "cause": cause,
        "person_key_id": key.id,
        "sealed_call": key.seal(plain_call(call)),
        "received_at": now,
    }
    run_together(session, [insertion(RefusedReceipt, [row]), (PRUNE_REFUSED, {"route": route.id, "kept": REFUSED_KEPT})])


def keep_call(session: Session, route: Route, call: Call, *, now: datetime) -> Kept:
    """Keep a verified call once: as the receipt that its carrier reads in it, or quarantined."""
    try:
        read = open_carrier(route.settings).read_receipt(call)
    except (KeyError, ValueError):
        digest = hashlib.sha256(call.query + b"\0" + call.body).hexdigest()
        return keep_unreadable(session, route, call, dedupe_key=f"unreadable/{digest}", now=now)
    return keep_receipt(session, route, call, read, now=now)


def keep_unreadable(session: Session, route: Route, call: Call, *, dedupe_key: str, now: datetime) -> Kept:
    """Quarantine a verified call that cannot be used: the raw call stays, no attempt changes."""
    return _keep(session, route, call, dedupe_key=dedupe_key, match=None, reports=[], status="quarantined", now=now)


def keep_receipt(session: Session, route: Route, call: Call, read: ReadReceipt, *, now: datetime) -> Kept:
    """Keep a verified call once, with the attempt it speaks of where we know it."""
    remote_ids = [r.remote_id for r in read.reports if r.remote_id]
    match, foreign = _find(session, route, read, remote_ids)
    if foreign:
        status = "quarantined"
    elif not read.reports:
        status = "no_news"
    else:
        status = "unmatched" if match is None else "waiting"
    reports = [_report_json(r) for r in read.reports]
    return _keep(session, route, call, dedupe_key=read.dedupe_key, match=match, reports=reports, status=status, now=now)


def _find(session: Session, route: Route, read: ReadReceipt, remote_ids: Sequence[str]) -> tuple[_Match | None, bool]:
    """Find the attempt by our reference, else by the remote id; say whether the call names another recipient."""
    found = rows(session, BY_REFERENCE, route=route.id, reference=read.reference) if read.reference else []
    if not found and remote_ids:
        found = rows(session, BY_REMOTE_ID, route=route.id, remote_ids=remote_ids)
    if not found or found[0].wrapped_key is None:
        return None, False
    row = found[0]
    if read.address is not None:
        theirs = address_hash(row.channel, "+" + read.address.lstrip("+").strip())
        if not same_bytes(theirs.digest, bytes(row.gate_hash)):
            return None, True
    return _Match(row.id, open_vault_key(row.person_key_id, row.wrapped_key)), False


def _keep(
    session: Session,
    route: Route,
    call: Call,
    *,
    dedupe_key: str,
    match: _Match | None,
    reports: list[dict[str, Any]],
    status: str,
    now: datetime,
) -> Kept:
    kept = rows(
        session,
        KEEP,
        id=new_id(),
        tenant=route.tenant_id,
        route=route.id,
        dedupe=dedupe_key,
        attempt=match.attempt_id if match else None,
        reports=Jsonb(reports),
        status=status,
        now=now,
    )[0]
    duplicate = kept.repeat_count > 0
    if not duplicate:
        key = match.key if match else holding_key(session, tenant_id=route.tenant_id, now=now)
        raw = {
            "receipt_id": kept.id,
            "tenant_id": route.tenant_id,
            "person_key_id": key.id,
            "sealed_call": key.seal(plain_call(call)),
            "received_at": now,
        }
        run_together(session, [insertion(ReceiptRaw, [raw])])
    # Of what is kept, so that a repetition observes under the same ids what nobody has observed yet.
    told = told_of(kept.id, kept.attempt_id, kept.reports) if kept.status == "waiting" else ()
    return Kept(ReceiptId(kept.id), kept.status, duplicate, told)


def told_of(receipt_id: UUID, attempt_id: UUID, reports: Sequence[Mapping[str, Any]]) -> tuple[Told, ...]:
    """Make observations of a receipt's stored reports; the ids are stored with them, so repeating is harmless."""
    return tuple(
        Told(
            attempt_id=AttemptId(attempt_id),
            state=AttemptState(r["state"]),
            source=Source.RECEIPT,
            id=UUID(r["id"]),
            error_class=ErrorClass(r["error_class"]) if r["error_class"] else None,
            error_code=r["error_code"],
            reason=Reason(r["reason"]) if r["reason"] else None,
            remote_id=r["remote_id"],
            part=r["part"],
            receipt_id=receipt_id,
            source_at=datetime.fromisoformat(r["source_at"]) if r["source_at"] else None,
        )
        for r in reports
    )


def mark_observed(session: Session, receipt_ids: Sequence[UUID], *, now: datetime) -> None:
    """Note that these receipts' reports are in the ledger."""
    rows(session, MARK_OBSERVED, ids=sorted(receipt_ids), now=now)


def _report_json(report: Report) -> dict[str, Any]:
    return {
        "id": str(new_id()),
        "state": report.state.value,
        "remote_id": report.remote_id,
        "error_class": report.error_class.value if report.error_class else None,
        "error_code": report.error_code,
        "reason": report.reason.value if report.reason else None,
        "source_at": report.source_at.isoformat() if report.source_at else None,
        "part": report.part,
    }


def plain_call(call: Call) -> dict[str, Any]:
    """Write a call down as it came, to be sealed."""
    return {
        "method": call.method,
        "query": call.query.decode("latin-1"),
        "headers": dict(call.headers),
        "body": base64.b64encode(call.body).decode(),
    }
