"""List a tenant's API keys: what each may do, and whether it still may; the keys themselves are not kept."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows

KEYS = "SELECT id, name, scopes, created_at, revoked_at FROM api_key WHERE tenant_id = %(tenant)s ORDER BY created_at, id"


def list_keys(session: Session, *, tenant_id: UUID) -> list[Any]:
    """List a tenant's keys, the oldest first."""
    return rows(session, KEYS, tenant=tenant_id)
