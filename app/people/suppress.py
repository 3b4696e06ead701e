"""Suppress an address, or lift that: rows are only ever added, and a lift names those that it lifts.

The gate is locked first, as prepare locks it. Whoever commits `prepared` before a suppression was first;
whoever comes after finds the mark, and then the row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Statement, insertion, rows, run_together
from app.ground.ids import new_id
from app.ground.keys import lasting_hash
from models.people import Suppression
from models.work import Gate

MARK = (
    "ON CONFLICT (tenant_id, address_hash) DO UPDATE SET suppressed_at = excluded.suppressed_at, changed_at = excluded.changed_at"
)

STANDS: Final = """
s.act = 'suppress' AND NOT EXISTS (
    SELECT FROM suppression l
    WHERE l.tenant_id = s.tenant_id AND l.address_hash = s.address_hash AND l.act = 'lift' AND s.id = ANY(l.lifts))
"""

# In one order always, so that the same rows make the same evidence.
STANDING: Final = f"""
SELECT s.id, s.tenant_id, s.address_hash, s.channel, s.category, s.everything, s.source, s.cause_id, s.at FROM suppression s
WHERE (s.tenant_id, s.address_hash) IN (SELECT * FROM unnest(%(gate_tenants)s::uuid[], %(hashes)s::bytea[])) AND {STANDS}
ORDER BY s.at, s.id
"""  # noqa: S608 - put together from the constant above

# A row that says the same and stands is enough: what is said again (a second STOP, a carrier's code after each
# message) is evidence where it was heard, as an inbound text or an observation. Read and written under the gate's
# lock, so that of many at once one is kept. What a list told is not enough: another list may take it back.
KEEP: Final = f"""
INSERT INTO suppression (id, tenant_id, address_hash, hash_key_id, channel, category, everything, act, source, cause_id, at)
SELECT %(id)s, %(tenant)s, %(hash)s, %(hash_key)s, %(channel)s, %(category)s, %(everything)s, 'suppress', %(source)s,
       %(cause)s::uuid, %(now)s::timestamptz
WHERE NOT EXISTS (
    SELECT FROM suppression s
    WHERE s.tenant_id = %(tenant)s AND s.address_hash = %(hash)s AND s.channel = %(channel)s AND s.source = %(source)s
      AND s.category IS NOT DISTINCT FROM %(category)s::text AND s.everything = %(everything)s AND s.told_at IS NULL AND {STANDS})
"""  # noqa: S608 - put together from the constant above


@dataclass(frozen=True, slots=True)
class Standing:
    """A suppression that no lift names."""

    id: UUID
    channel: str
    category: str | None
    """None: every category, as far as the policy lets an opt-out reach."""
    everything: bool
    """Every category, whatever the policy says."""
    source: str
    cause_id: UUID | None
    """The inbound text, observation or operator action that it came from."""
    at: datetime


def suppress(
    session: Session,
    *,
    tenant_id: UUID,
    channel: str,
    address_hash: bytes,
    source: str,
    cause_id: UUID | None,
    category: str | None = None,
    everything: bool = False,
    now: datetime,
) -> UUID:
    """Keep a suppression of an address in one category, in all that the policy lets it reach, or in everything.

    Return its id: that of the row that stands, where one of the same source and scope stands already.
    """
    row = {
        "id": new_id(),
        "tenant": tenant_id,
        "hash": address_hash,
        "hash_key": lasting_hash("gate", b"").key_id,
        "channel": channel,
        "category": category,
        "everything": everything,
        "source": source,
        "cause": cause_id,
        "now": now,
    }
    found = _under_the_gate(session, (KEEP, row), tenant_id=tenant_id, address_hash=address_hash, now=now)
    said = (channel, category, everything, source)
    return next(s.id for s in found if (s.channel, s.category, s.everything, s.source) == said)


def lift(
    session: Session,
    *,
    tenant_id: UUID,
    channel: str,
    address_hash: bytes,
    source: str,
    cause_id: UUID | None,
    lifts: Collection[UUID],
    now: datetime,
) -> list[Standing]:
    """Lift those of these suppressions that stand on the channel of this address, and return them; none: nothing was written."""
    found = _under_the_gate(session, tenant_id=tenant_id, address_hash=address_hash, now=now)
    lifted = [each for each in found if each.id in lifts and each.channel == channel]
    if lifted:
        row = {
            "id": new_id(),
            "tenant_id": tenant_id,
            "address_hash": address_hash,
            "hash_key_id": lasting_hash("gate", b"").key_id,
            "channel": channel,
            "category": None,
            "everything": False,
            "act": "lift",
            "lifts": sorted(each.id for each in lifted),
            "source": source,
            "cause_id": cause_id,
            "at": now,
        }
        run_together(session, [insertion(Suppression, [row])])
    return lifted


def standing(session: Session, *, tenant_id: UUID, address_hash: bytes) -> list[Standing]:
    """Give the suppressions of an address that stand, on all channels, the oldest first."""
    return _read(rows(session, STANDING, gate_tenants=[tenant_id], hashes=[address_hash]))


def _under_the_gate(session: Session, *writes: Statement, tenant_id: UUID, address_hash: bytes, now: datetime) -> list[Standing]:
    """Lock the person's gate and mark it, so that prepare sees it; then write, and read what stands, with fresh snapshots."""
    gate = {
        "tenant_id": tenant_id,
        "address_hash": address_hash,
        "hash_key_id": lasting_hash("gate", b"").key_id,
        "slots": {},
        "suppressed_at": now,
        "changed_at": now,
    }
    reading = (STANDING, {"gate_tenants": [tenant_id], "hashes": [address_hash]})
    return _read(run_together(session, [insertion(Gate, [gate], tail=MARK), *writes, reading])[-1])


def _read(found: list[Any]) -> list[Standing]:
    return [Standing(s.id, s.channel, s.category, s.everything, s.source, s.cause_id, s.at) for s in found]
