"""Call off an occasion: the seat is filled, and nobody who still waits to be told of it is to be told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.ground.db import Tx, rows, transact
from app.ground.ids import new_id
from app.ledger import cancellation as ledger
from app.ledger.cancellation import Occasion
from app.ledger.feed import UnknownCursor
from app.ledger.view import public_state
from policy.states import PublicState
from policy.words import Found

HANDED_OFF = """
SELECT c.event_id, c.channel, c.intent_id, e.recipient_ref, i.state, i.reason, i.close_request
FROM cancelled c JOIN event e ON e.id = c.event_id JOIN intent i ON i.id = c.intent_id
WHERE c.cancellation_id = %(id)s AND c.found = 'handed_off' AND (c.event_id, c.channel) > (%(event)s::uuid, %(channel)s)
ORDER BY c.event_id, c.channel LIMIT %(limit)s
"""

FIRST: Final = (UUID(int=0), "")
SEPARATOR: Final = "."


@dataclass(frozen=True, slots=True)
class Begun:
    """A cancellation that is under way, or was already, under the same key."""

    tenant_id: UUID
    id: UUID
    duplicate: bool


@dataclass(frozen=True, slots=True)
class HandedOff:
    """One that had left, or may have, when its occasion was called off; its state is that of now."""

    event_id: UUID
    intent_id: UUID
    channel: str
    recipient_ref: str
    state: PublicState
    reason: str | None
    close_request: str | None


@dataclass(frozen=True, slots=True)
class CancellationView:
    """A cancellation, its counts as of the cut, and a page of what had been handed off."""

    id: UUID
    type: str
    subject: str
    excepted: tuple[str, ...]
    reason: str
    begun_at: datetime
    cut_at: datetime | None
    counts: dict[str, int] | None
    """By what was found of each event and channel; None until the cut."""
    handed_off: tuple[HandedOff, ...]
    next_cursor: str | None
    """None when there are no more."""


def occasion_of(kind: str, subject: str, excepted: Iterable[str] = ()) -> Occasion:
    """Name an occasion; the people excepted in any order, each as often as one likes."""
    return Occasion(kind, subject, tuple(sorted(set(excepted))))


def begin_cancellation(
    session: Session, *, tenant_id: UUID, asked: Occasion, reason: str, actor: str, key: str | None, now: datetime
) -> Begun:
    """Write down what is called off, by whom and why; under a key that was used, find what was begun with it.

    What had closed before is found at once; nothing is closed yet: `cancel_occasion` goes on from here.
    KeyReused when the key asked for something else.
    """
    before = ledger.find_by_key(session, tenant_id=tenant_id, key=key, asked=asked, reason=reason)
    if before is not None:
        return Begun(tenant_id, before, duplicate=True)
    cancellation_id = new_id()
    subject = {"cancellation_id": str(cancellation_id), "type": asked.type, "subject": asked.subject}
    action_id = record_action(session, tenant_id=tenant_id, actor=actor, verb="cancel", subject=subject, reason=reason, now=now)
    row = {
        "id": cancellation_id,
        "tenant_id": tenant_id,
        "key": key,
        "type": asked.type,
        "subject": asked.subject,
        "excepted": list(asked.excepted),
        "reason": reason,
        "actor": actor,
        "action_id": action_id,
        "begun_at": now,
    }
    ledger.begin(session, row)
    ledger.find_closed(session, ledger.get(session, tenant_id=tenant_id, cancellation_id=cancellation_id))
    return Begun(tenant_id, cancellation_id, duplicate=False)


def cancel_occasion(begun: Begun) -> None:
    """Close what waits in pages, each in a transaction of its own, and then cut; one that was cut already stays as it is.

    Broken off in the middle, what is closed stays closed, and calling it again goes on. More waits only where
    people are told faster than a page closes, so the pages come to an end.
    """
    row = transact(lambda tx: ledger.get(tx.session, tenant_id=begun.tenant_id, cancellation_id=begun.id))
    if row.cut_at is not None:
        return
    left = transact(lambda tx: ledger.waiting(tx.session, row))
    while left:
        for start in range(0, len(left), ledger.PAGE):
            transact(partial(_close_page, row=row, intent_ids=left[start : start + ledger.PAGE]))
        left = transact(lambda tx: ledger.waiting(tx.session, row))
        if len(left) < ledger.PAGE:
            break  # the cut takes them
    transact(partial(_cut, row=row))


def read_cancellation(
    session: Session, *, tenant_id: UUID, cancellation_id: UUID, after: str | None, limit: int
) -> CancellationView:
    """Read a cancellation with a page of what had been handed off; NoSuchCancellation, UnknownCursor."""
    row = ledger.get(session, tenant_id=tenant_id, cancellation_id=cancellation_id)
    event_id, channel = _position(after)
    found = rows(session, HANDED_OFF, id=row.id, event=event_id, channel=channel, limit=limit + 1)
    page = found[:limit]
    return CancellationView(
        id=row.id,
        type=row.type,
        subject=row.subject,
        excepted=tuple(row.excepted),
        reason=row.reason,
        begun_at=row.begun_at,
        cut_at=row.cut_at,
        counts={found: getattr(row, f"{found}_count") for found in Found} if row.cut_at is not None else None,
        handed_off=tuple(
            HandedOff(h.event_id, h.intent_id, h.channel, h.recipient_ref, public_state(h.state), h.reason, h.close_request)
            for h in page
        ),
        next_cursor=f"{page[-1].event_id}{SEPARATOR}{page[-1].channel}" if len(found) > limit else None,
    )


def _close_page(tx: Tx, *, row: Any, intent_ids: list[UUID]) -> None:  # noqa: ANN401 - a cancellation's row
    ledger.close_page(tx.session, row, intent_ids, now=tx.now)


def _cut(tx: Tx, *, row: Any) -> None:  # noqa: ANN401 - a cancellation's row
    ledger.cut(tx.session, row, now=tx.now)


def _position(cursor: str | None) -> tuple[UUID, str]:
    if cursor is None:
        return FIRST
    event_id, _, channel = cursor.partition(SEPARATOR)
    try:
        return UUID(event_id), channel
    except ValueError as error:
        raise UnknownCursor("no cursor of a cancellation") from error
