"""Give a freed business key to the newest unexpired event that had joined it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows, run_together
from app.ledger.decide import Wish
from app.ledger.open import ORDER, Entries, Opening, open_intent
from app.ledger.surroundings import statements, surroundings_of
from app.people.contacts import read_number
from app.people.vault import open_vault_key
from app.render import body_for, render
from policy.states import PublicState
from policy.words import Category, Channel

# A fresh snapshot after the close: an acceptance that joined before the intent was locked has
# committed by now, one that comes later waits for the lock and finds the key free.
NEWEST_JOINED = """
SELECT DISTINCT ON (e.tenant_id, e.business_key, j.channel) e.id AS event_id, e.tenant_id, e.business_key, e.recipient_ref,
       e.category, e.accepted_at, e.expires_at, e.not_before, e.payload, j.channel, j.contact_id, c.address_hash, c.country,
       c.zones, k.id AS key_id, k.wrapped_key, t.bodies, t.default_locale
FROM intent freed
JOIN event e ON e.tenant_id = freed.tenant_id AND e.business_key = freed.business_key
JOIN joining j ON j.event_id = e.id AND j.channel = freed.channel
JOIN contact c ON c.id = j.contact_id
JOIN person_key k ON k.id = e.person_key_id
JOIN template_version t ON t.tenant_id = e.tenant_id AND t.name = e.template_name AND t.version = e.template_version
WHERE freed.id = ANY(%(ids)s::uuid[]) AND e.expires_at > %(now)s AND k.wrapped_key IS NOT NULL
  AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = e.id AND own.channel = j.channel)
  AND NOT EXISTS (SELECT FROM operator_action c
                  WHERE c.tenant_id = e.tenant_id AND c.verb = 'cancel' AND c.subject ->> 'event_id' = e.id::text)
  AND NOT EXISTS (SELECT FROM cancelled c WHERE c.event_id = e.id AND c.channel = j.channel AND c.found = 'joined')
ORDER BY e.tenant_id, e.business_key, j.channel, e.accepted_at DESC, e.id DESC
"""


def promote_joined(session: Session, freed: Iterable[UUID], *, now: datetime) -> None:
    """Open an intent for the newest event that joined each freed intent; if that closes at once, for the next."""
    ids = sorted(freed)
    while ids:
        joined = rows(session, NEWEST_JOINED, ids=ids, now=now)
        if not joined:
            return
        gates = [(j.tenant_id, bytes(j.address_hash)) for j in joined]
        around = surroundings_of(session, run_together(session, statements({j.tenant_id for j in joined}, gates, now=now)))
        entries = Entries()
        opened = [open_intent(entries, _opening(j), around, now=now) for j in joined]
        run_together(session, entries.statements(ORDER))
        # Each turn gives an intent to one more event of the key, so this ends.
        ids = sorted(view.intent_id for view in opened if view.state not in {PublicState.QUEUED, PublicState.DEFERRED})


def _opening(joined: Any) -> Opening:  # noqa: ANN401 - a row of NEWEST_JOINED
    payload = open_vault_key(joined.key_id, joined.wrapped_key).open(joined.payload)
    text = body_for(joined.bodies, locale=payload["locale"], default_locale=joined.default_locale)
    number = read_number(payload["sms"])
    wish = Wish(
        tenant_id=joined.tenant_id,
        business_key=joined.business_key,
        channel=Channel(joined.channel),
        category=Category(joined.category),
        gate_hash=bytes(joined.address_hash),
        country=joined.country,
        number_zones=tuple(joined.zones),
        declared_zone=payload["time_zone"],
        recipient_version=payload.get("recipient_version"),
        accepted_at=joined.accepted_at,
        expires_at=joined.expires_at,
        not_before=joined.not_before,
        segment_count=None,  # counted when it is opened
        number_type=number.type,
        subdivisions=number.subdivisions,
    )
    return Opening(joined.event_id, joined.recipient_ref, joined.contact_id, wish, render(text, payload["data"]))
