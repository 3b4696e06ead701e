"""Suppress an address, or lift that; both are kept. The gate is locked first, as prepare locks it."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, run_together
from app.ground.ids import new_id
from app.ground.keys import lasting_hash
from models.people import Suppression
from models.work import Gate

# Whoever commits `prepared` before this commits was first; whoever comes after finds the mark.
MARK = (
    "ON CONFLICT (tenant_id, address_hash) DO UPDATE SET suppressed_at = excluded.suppressed_at, changed_at = excluded.changed_at"
)


def suppress(
    session: Session,
    *,
    tenant_id: UUID,
    channel: str,
    address_hash: bytes,
    source: str,
    cause_id: UUID | None,
    category: str | None = None,
    now: datetime,
) -> UUID:
    """Keep a suppression of an address in one category, or in all; return its id."""
    hash_key_id = lasting_hash("gate", b"").key_id
    gate = {
        "tenant_id": tenant_id,
        "address_hash": address_hash,
        "hash_key_id": hash_key_id,
        "slots": {},
        "suppressed_at": now,
        "changed_at": now,
    }
    row = {
        "id": new_id(),
        "tenant_id": tenant_id,
        "address_hash": address_hash,
        "hash_key_id": hash_key_id,
        "channel": channel,
        "category": category,
        "act": "suppress",
        "source": source,
        "cause_id": cause_id,
        "at": now,
    }
    run_together(session, [insertion(Gate, [gate], tail=MARK), insertion(Suppression, [row])])
    return UUID(str(row["id"]))
