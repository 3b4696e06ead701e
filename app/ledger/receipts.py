"""Keep a carrier's calls: refused ones apart, verified ones once, and find the attempt that each speaks of."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Call, ReadReceipt, Report
from app.carriers.registry import open_carrier
from app.ground.db import as_json, insertion, rows, run_together
from app.ground.ids import AttemptId, ReceiptId, new_id
from app.ground.keys import same_bytes
from app.ledger.observe import Told
from app.ledger.routes import Route
from app.people.contacts import address_hash
from app.people.holding import holding_key
from app.people.vault import VaultKey, open_vault_key
from models.work import Receipt, RefusedReceipt
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Source

REFUSED_KEPT: Final = 1000
"""Refused calls kept per route: enough to replay an hour of a wrong secret, not a way to fill a disk."""

BY_REFERENCE = """
SELECT a.attempt_key AS name, a.id, i.gate_hash, i.channel, e.person_key_id, k.wrapped_key
FROM attempt a JOIN intent i ON i.id = a.intent_id JOIN event e ON e.id = a.event_id JOIN person_key k ON k.id = e.person_key_id
WHERE a.route_id = %(route)s AND a.attempt_key = ANY(%(references)s::text[])
"""

BY_REMOTE_ID = """
SELECT r.remote_id AS name, a.id, i.gate_hash, i.channel, e.person_key_id, k.wrapped_key
FROM remote_id r JOIN attempt a ON a.id = r.attempt_id JOIN intent i ON i.id = a.intent_id JOIN event e ON e.id = a.event_id
JOIN person_key k ON k.id = e.person_key_id
WHERE r.route_id = %(route)s AND r.remote_id = ANY(%(remote_ids)s::text[])
"""

# The carrier repeats calls until we answer well: the first is kept, the others are counted. One that
# matched nobody may match now: the answer that names the remote id can be slower than the receipt.
REPEATED = """
ON CONFLICT (route_id, dedupe_key) DO UPDATE
SET repeat_count = receipt.repeat_count + 1, attempt_id = coalesce(receipt.attempt_id, excluded.attempt_id),
    status = CASE WHEN receipt.status = 'unmatched' THEN excluded.status ELSE receipt.status END
RETURNING id, dedupe_key, status, repeat_count, attempt_id, reports
"""

# Beside the receipts that were kept just now, and not beside those that were there already.
KEEP_RAW = """
INSERT INTO receipt_raw (receipt_id, tenant_id, person_key_id, sealed_call, received_at)
SELECT receipt_id, tenant_id, person_key_id, sealed_call, %(now)s
FROM json_to_recordset(%(new)s::json) AS n (receipt_id uuid, tenant_id uuid, person_key_id uuid, sealed_call bytea)
WHERE EXISTS (SELECT FROM receipt r WHERE r.id = n.receipt_id)
"""

PRUNE_REFUSED = """
DELETE FROM refused_receipt WHERE id IN (
    SELECT id FROM refused_receipt WHERE route_id = %(route)s ORDER BY received_at DESC, id DESC OFFSET %(kept)s)
"""

# Compare-and-set: handler, duplicate and reconcile alike observe what is not yet observed. Said so that
# no planner takes the index of all that waits, dead rows included, for a way to a few ids.
MARK_OBSERVED = """
UPDATE receipt SET status = 'observed', observed_at = %(now)s
WHERE id = ANY(%(ids)s::uuid[]) AND status NOT IN ('observed', 'quarantined', 'no_news')
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
class Incoming:
    """A verified call, and what was read out of it."""

    call: Call
    dedupe_key: str
    """The same for every repetition of this call."""
    read: ReadReceipt | None
    """None: it cannot be used, and is kept for a person to look at."""

    @property
    def remote_ids(self) -> list[str]:
        """Give the carrier's ids that it names."""
        return [r.remote_id for r in self.read.reports if r.remote_id] if self.read else []


@dataclass(frozen=True, slots=True)
class Kept:
    """A receipt as it is kept."""

    id: ReceiptId
    status: str
    """waiting, observed, unmatched, quarantined or no_news."""
    duplicate: bool
    told: tuple[Told, ...]
    """What is to be observed; the same for every repetition until somebody did."""


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


def read_call(route: Route, call: Call) -> Incoming:
    """Read a verified call; one that cannot be used is to be kept all the same, once."""
    try:
        read = open_carrier(route.settings).read_receipt(call)
    except (KeyError, ValueError):
        digest = hashlib.sha256(call.query + b"\0" + call.body).hexdigest()
        return Incoming(call, f"unreadable/{digest}", None)
    return Incoming(call, read.dedupe_key, read)


def keep_receipts(session: Session, route: Route, incoming: Sequence[Incoming], *, now: datetime) -> list[Kept]:
    """Keep a route's verified calls, each once, with the attempts they speak of where we know them; answer in their order."""
    kept: dict[int, Kept] = {}
    left = dict(enumerate(incoming))
    while left:
        # One statement writes a row once: a repetition within the page comes in the next.
        first = {each.dedupe_key: n for n, each in reversed(left.items())}
        page = [(n, left.pop(n)) for n in sorted(first.values())]
        kept |= zip([n for n, _ in page], _keep_once(session, route, [each for _, each in page], now=now), strict=True)
    return [kept[n] for n in range(len(incoming))]


def _keep_once(session: Session, route: Route, incoming: Sequence[Incoming], *, now: datetime) -> list[Kept]:
    """Keep calls no two of which are repetitions of each other."""
    known = _find_attempts(session, route, incoming)
    holding = cache(lambda: holding_key(session, tenant_id=route.tenant_id, now=now))  # one for all that match nobody
    new, raw = [], []
    for each in sorted(incoming, key=lambda each: each.dedupe_key):
        match, status = known.judge(each)
        row = _row(route, each, match, status, now=now)
        key = match.key if match else holding()
        new.append(row)
        raw.append(
            {
                "receipt_id": row["id"],
                "tenant_id": route.tenant_id,
                "person_key_id": key.id,
                "sealed_call": key.seal(plain_call(each.call)),
            }
        )
    written, _ = run_together(session, [insertion(Receipt, new, tail=REPEATED), (KEEP_RAW, {"new": as_json(raw), "now": now})])
    kept = {row.dedupe_key: _kept(row) for row in written}
    return [kept[each.dedupe_key] for each in incoming]


def _find_attempts(session: Session, route: Route, incoming: Sequence[Incoming]) -> _Known:
    """Find the attempts that a page speaks of; by the carrier's ids only where our reference, which says more, is not there."""
    references = {each.read.reference for each in incoming if each.read and each.read.reference}
    found = rows(session, BY_REFERENCE, route=route.id, references=sorted(references)) if references else []
    by_reference = {row.name: row for row in found}
    strange = [each for each in incoming if each.read and each.read.reference not in by_reference]
    remote_ids = {remote_id for each in strange for remote_id in each.remote_ids}
    found = rows(session, BY_REMOTE_ID, route=route.id, remote_ids=sorted(remote_ids)) if remote_ids else []
    return _Known(by_reference, {row.name: row for row in found})


def _kept(row: Any) -> Kept:  # noqa: ANN401 - a row of REPEATED
    # Of what is kept, so that a repetition observes under the same ids what nobody has observed yet.
    told = told_of(row.id, row.attempt_id, row.reports) if row.status == "waiting" else ()
    return Kept(ReceiptId(row.id), row.status, row.repeat_count > 0, told)


@dataclass(frozen=True, slots=True)
class _Known:
    """The attempts that a page of calls may speak of."""

    by_reference: Mapping[str, Any]
    by_remote_id: Mapping[str, Any]

    def judge(self, each: Incoming) -> tuple[_Match | None, str]:
        """Find the attempt by our reference, else by the carrier's id; say how the call stands."""
        if each.read is None:
            return None, "quarantined"
        found = self.by_reference.get(each.read.reference or "") or next(
            (self.by_remote_id[i] for i in each.remote_ids if i in self.by_remote_id), None
        )
        if found is None or found.wrapped_key is None:
            return None, "unmatched" if each.read.reports else "no_news"
        if each.read.address is not None:
            theirs = address_hash(found.channel, "+" + each.read.address.lstrip("+").strip())
            if not same_bytes(theirs.digest, bytes(found.gate_hash)):
                return None, "quarantined"  # it names another recipient
        match = _Match(found.id, open_vault_key(found.person_key_id, found.wrapped_key))
        return match, "waiting" if each.read.reports else "no_news"


def _row(route: Route, each: Incoming, match: _Match | None, status: str, *, now: datetime) -> dict[str, Any]:
    return {
        "id": new_id(),
        "tenant_id": route.tenant_id,
        "route_id": route.id,
        "dedupe_key": each.dedupe_key,
        "attempt_id": match.attempt_id if match else None,
        "reports": [_report_json(report) for report in each.read.reports] if each.read else [],
        "status": status,
        "repeat_count": 0,
        "received_at": now,
        "observed_at": None,
    }


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


def mark_observed(session: Session, receipt_ids: Iterable[UUID], *, now: datetime) -> None:
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
