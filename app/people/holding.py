"""Find or make vault keys: a person's, or the month's for calls that match nobody."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, rows, run_together
from app.ground.ids import new_id
from app.people.vault import VaultKey, new_vault_key, open_vault_key
from models.people import PersonKey

FIND = "SELECT id, wrapped_key FROM person_key WHERE tenant_id = %(tenant)s AND kind = 'holding' AND name = %(month)s"


def holding_key(session: Session, *, tenant_id: UUID, now: datetime) -> VaultKey:
    """Give the tenant's key of the month for what belongs to no known person."""
    month = f"{now:%Y-%m}"
    found = rows(session, FIND, tenant=tenant_id, month=month)
    if not found:
        key, wrapped = new_vault_key(new_id())
        row = {
            "id": key.id,
            "tenant_id": tenant_id,
            "kind": "holding",
            "name": month,
            "wrapped_key": wrapped,
            "created_at": now,
            "destroyed_at": None,
        }
        run_together(session, [insertion(PersonKey, [row], tail="ON CONFLICT DO NOTHING")])
        found = rows(session, FIND, tenant=tenant_id, month=month)  # ours, or that of whoever was first
    return open_vault_key(found[0].id, found[0].wrapped_key)
