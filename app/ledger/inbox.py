"""The inbox: what people wrote, in one order that the tenant follows by cursor, without gaps, while calls come in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.feed import STATE, read_cursor
from app.people.vault import open_vault_key

# As in the feed: places are given to what has committed, by one transaction at a time, so that nothing gets a place
# behind a reader. Whoever loses the lock shows what has one.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('daybook.inbox')) AS ours"

PLACE = """
UPDATE inbound n SET position = p.position
FROM (SELECT id, nextval('inbound_position') AS position FROM (
          SELECT id FROM inbound WHERE position IS NULL ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED) w) p
WHERE n.id = p.id
"""

ITEMS = """
SELECT n.position, n.id, n.received_at, r.name AS route, n.refs, n.word, n.review, n.sealed_text, k.id AS key_id, k.wrapped_key
FROM inbound n JOIN route r ON r.id = n.route_id JOIN person_key k ON k.id = n.person_key_id
WHERE n.tenant_id = %(tenant)s AND n.position > %(after)s
  AND (%(recipient)s::text IS NULL OR n.refs @> ARRAY[%(recipient)s::text])
ORDER BY n.position LIMIT %(limit)s
"""

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class InboundText:
    """One text that somebody wrote."""

    id: UUID
    at: datetime
    route: str
    recipients: list[str]
    """Whose address it is or was; several may share one, and nobody known may have it."""
    word: str
    review: bool
    address: str | None
    """None after the person was erased, and of a call that could not be read."""
    text: str | None


@dataclass(frozen=True, slots=True)
class InboxPage:
    """One page of what a tenant's people wrote."""

    items: list[InboundText]
    next_cursor: str
    has_more: bool


def place(session: Session) -> None:
    """Give places to texts that have none, unless somebody else is at it."""
    if rows(session, TRY_LOCK)[0].ours:
        rows(session, PLACE, limit=PAGE)


def read_inbox(session: Session, *, tenant_id: UUID, after: str | None, limit: int, recipient: str | None = None) -> InboxPage:
    """Read up to `limit` texts after a cursor; UnknownCursor when the cursor cannot be followed."""
    epoch = rows(session, STATE)[0].epoch
    start = read_cursor(after, epoch=epoch)
    found = rows(session, ITEMS, tenant=tenant_id, after=start, recipient=recipient, limit=limit + 1)
    last = found[:limit][-1].position if found else start
    return InboxPage([_text(row) for row in found[:limit]], f"{epoch}.{last}", len(found) > limit)


def _text(row: Any) -> InboundText:  # noqa: ANN401 - a row of ITEMS
    opened = open_vault_key(row.key_id, row.wrapped_key).open(bytes(row.sealed_text)) if row.wrapped_key is not None else {}
    common = (row.id, row.received_at, row.route, list(row.refs), row.word, row.review)
    return InboundText(*common, opened.get("from"), opened.get("text"))
