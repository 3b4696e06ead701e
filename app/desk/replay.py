"""Replay refused receipts after a secret was wrong: what verifies now is kept like any other, and is refused no more."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Call, Carrier
from app.carriers.registry import CARRIERS
from app.desk.action import record_action
from app.desk.pause import get_route
from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ledger.inbound import TEXT_REFUSED, keep_text
from app.ledger.receipts import keep_receipts, read_call
from app.ledger.routes import Route, read_routes
from app.people.vault import VaultDamaged, VaultKeyMissing, open_vault_key

# Locked, so that of two replays the second finds what the first left.
REFUSED: Final = """
SELECT x.id, x.cause, x.sealed_call, x.person_key_id, k.wrapped_key
FROM refused_receipt x JOIN person_key k ON k.id = x.person_key_id
WHERE x.route_id = %(route)s AND x.cause IN ('not_authentic', 'inbound_not_authentic') AND x.id > %(after)s
ORDER BY x.id LIMIT %(limit)s FOR UPDATE OF x
"""
FORGET: Final = "DELETE FROM refused_receipt WHERE id = ANY(%(ids)s::uuid[])"

PAGE: Final = 100
START: Final = UUID(int=0)


class OtherCarrier(DaybookError):
    """The credentials are of a route to another carrier."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Which route's refused calls are verified again, and with whose credentials."""

    route: str
    credentials_of: str | None
    """A route of the same carrier; a route never changes, so the right secret is mostly another one's. None: its own."""
    reason: str
    actor: str


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of one page of refused calls."""

    kept: Mapping[str, int]
    """By the status of the receipt or text; what is `waiting` is observed, or acted on, by the next sweep."""
    refused: int
    """They do not verify, and stay."""
    unopened: int
    """Their vault key is missing, or they are damaged; they stay."""
    next_after: UUID | None
    """None on the last page."""


def replay_refused(session: Session, replay: Replay, *, tenant_id: UUID, after: UUID = START, now: datetime) -> Replayed:
    """Verify a page of a route's refused calls again; keep what verifies and forget its refusal, in this transaction.

    Raises NoSuchRoute and OtherCarrier.
    """
    route, carrier = _opened(session, replay, tenant_id)
    page = rows(session, REFUSED, route=route.id, after=after, limit=PAGE)
    done: dict[UUID, Call] = {}
    texts: set[UUID] = set()
    unopened = 0
    for row in page:
        try:
            call = _call(open_vault_key(row.person_key_id, row.wrapped_key).open(row.sealed_call))
        except (VaultDamaged, VaultKeyMissing):
            unopened += 1
            continue
        is_text = row.cause == TEXT_REFUSED
        if carrier.is_authentic(call, url=route.settings.inbound_url if is_text else None):
            done[row.id] = call
            texts |= {row.id} if is_text else set()
    receipts = [read_call(route, call) for refused_id, call in done.items() if refused_id not in texts]
    kept = [each.status for each in keep_receipts(session, route, receipts, now=now)]
    kept += [keep_text(session, route, done[refused_id], now=now).status for refused_id in sorted(texts)]
    if done:
        rows(session, FORGET, ids=sorted(done))
        subject = {"route": replay.route, "credentials_of": replay.credentials_of, "count": len(done)}
        record_action(
            session,
            tenant_id=tenant_id,
            actor=replay.actor,
            verb="replay_receipts",
            subject=subject,
            reason=replay.reason,
            now=now,
        )
    return Replayed(
        Counter(kept),
        len(page) - len(done) - unopened,
        unopened,
        page[-1].id if len(page) == PAGE else None,
    )


def _opened(session: Session, replay: Replay, tenant_id: UUID) -> tuple[Route, Carrier]:
    """Give the route, and its carrier with the credentials that are to be tried: not the one that is open in this process."""
    route_id = get_route(session, tenant_id, replay.route)
    other_id = get_route(session, tenant_id, replay.credentials_of) if replay.credentials_of is not None else route_id
    routes = read_routes(session, {route_id, other_id})
    route, other = routes[route_id], routes[other_id]
    if other.carrier != route.carrier:
        raise OtherCarrier(f"{replay.credentials_of} is a route to {other.carrier}, not to {route.carrier}")
    carrier = CARRIERS[route.carrier](replace(route.settings, credentials=other.settings.credentials))
    return route, carrier


def _call(plain: Mapping[str, Any]) -> Call:
    """Give a call as it came, out of what was sealed of it."""
    return Call(plain["method"], plain["query"].encode("latin-1"), plain["headers"], base64.b64decode(plain["body"]))
