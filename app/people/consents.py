"""Consents: append evidence that addresses may be contacted, or that this was withdrawn; read which acts stand.

An act covers its category on its channel, or every category where it names none; a withdrawal covers its
kind, or every kind where it names none. Of the acts that cover a category and a kind the latest stands, and
at the same instant the withdrawal: it replaces what was said before, be that wider or longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.ids import new_id
from app.people.evidence import Kept, content_hash, keep_once
from app.people.mark import marks
from app.people.persons import Addressee, Contacted, NotKept, find_persons
from models.people import Consent
from policy.words import Category

# One row for each category and kind that ever was granted: what covers it is resolved here, so that nobody
# who reads `withdrawn` can miss a withdrawal of everything. To be read after the gates, in a snapshot of its
# own, as suppressions are: a withdrawal that commits in between is then seen without its mark, never the mark
# without it. A tenant's clock that runs ahead gives its act no precedence over what is told later: nothing
# counts as said after it was recorded.
STANDING = f"""
WITH said AS MATERIALIZED (
    SELECT *, least(captured_at, recorded_at) AS said_at FROM consent
    WHERE (tenant_id, address_hash) IN (SELECT * FROM unnest(%(gate_tenants)s::uuid[], %(hashes)s::bytea[]))
), scope AS (
    SELECT DISTINCT s.tenant_id, s.address_hash, s.channel, c.category, s.kind
    FROM said s JOIN unnest(ARRAY{[*map(str, Category)]}) AS c (category) ON s.category IS NULL OR s.category = c.category
    WHERE s.act = 'grant'
)
SELECT DISTINCT ON (o.tenant_id, o.address_hash, o.channel, o.category, o.kind)
       o.tenant_id, o.address_hash, s.id, o.channel, o.category, o.kind, s.said_at AS captured_at, s.expires_at, s.wording,
       s.act = 'withdraw' AS withdrawn
FROM scope o JOIN said s ON s.tenant_id = o.tenant_id AND s.address_hash = o.address_hash AND s.channel = o.channel
     AND (s.category IS NULL OR s.category = o.category) AND (s.kind IS NULL OR s.kind = o.kind)
ORDER BY o.tenant_id, o.address_hash, o.channel, o.category, o.kind, s.said_at DESC, s.act = 'withdraw' DESC, s.id DESC
"""  # noqa: S608 - put together from our own words

# Of everything said for any address of this person, newest first; a cursor is the id of the row before.
HISTORY = """
SELECT id, channel, category, act, kind, captured_at, expires_at, wording, source, recorded_at, recorded_by FROM consent
WHERE tenant_id = %(tenant)s
  AND address_hash IN (SELECT address_hash FROM contact WHERE tenant_id = %(tenant)s AND recipient_ref = %(ref)s)
  AND (%(after)s::uuid IS NULL OR id < %(after)s::uuid)
ORDER BY id DESC LIMIT %(limit)s
"""

AHEAD: Final = timedelta(minutes=5)
"""How far a tenant's clock may run ahead of ours."""


@dataclass(frozen=True, slots=True)
class NewConsent:
    """One act to be kept: a grant of a kind, or a withdrawal."""

    about: Addressee
    category: str | None
    act: str
    kind: str | None
    captured_at: datetime | None
    """None: now."""
    expires_at: datetime | None
    wording: str | None
    source: str


def record_consents(
    session: Session, new: Sequence[NewConsent], *, tenant_id: UUID, actor: str, now: datetime
) -> list[Kept | NotKept]:
    """Keep many acts in order, each on its own; Raced when another was first to know one of these people."""
    persons = find_persons(session, [each.about for each in new], tenant_id=tenant_id, now=now)
    told = [_row_of(each, persons.reach(each.about), tenant_id=tenant_id, now=now) for each in new]
    fresh = [row | {"recorded_at": now, "recorded_by": actor} for row in told if not isinstance(row, NotKept)]
    if not fresh:
        return [each for each in told if isinstance(each, NotKept)]
    withdrawn = (row["address_hash"] for row in fresh if row["act"] == "withdraw")
    before = [*persons.statements(), *marks(withdrawn, tenant_id=tenant_id, now=now)]
    kept = iter(keep_once(session, Consent, fresh, before=before, tenant_id=tenant_id))
    return [each if isinstance(each, NotKept) else next(kept) for each in told]


def _row_of(each: NewConsent, contact: Contacted | NotKept, *, tenant_id: UUID, now: datetime) -> dict[str, Any] | NotKept:
    captured_at = each.captured_at or now
    if isinstance(contact, NotKept):
        return contact
    if captured_at > now + AHEAD:
        return NotKept.IN_THE_FUTURE
    if each.expires_at is not None and each.expires_at <= captured_at:
        return NotKept.ENDED_BEFORE
    content: dict[str, Any] = {
        "recipient_ref": each.about.ref,
        "address_hash": contact.address_hash,
        "channel": each.about.channel,
        "category": each.category,
        "act": each.act,
        "kind": each.kind,
        "captured_at": captured_at,
        "expires_at": each.expires_at,
        "wording": each.wording,
        "source": each.source,
    }
    named = {"id": new_id(), "tenant_id": tenant_id, "content_hash": content_hash(content)}
    return named | content | contact.columns()


def list_consents(session: Session, *, tenant_id: UUID, ref: str, after: UUID | None, limit: int) -> list[Any]:
    """List what was told of a person's addresses, the newest first."""
    return rows(session, HISTORY, tenant=tenant_id, ref=ref, after=after, limit=limit)
