"""List what is in the inlet and why some of it was refused; what the rows ask for stays in the vault."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from app.ground.db import rows

WAITING = """
SELECT id, tenant, status, created_at, NULL::timestamptz AS done_at, NULL::jsonb AS error
FROM inlet WHERE status = 'waiting' ORDER BY id LIMIT %(limit)s
"""

REFUSED = """
SELECT id, tenant, status, created_at, done_at, error FROM inlet WHERE status = 'refused' ORDER BY id DESC LIMIT %(limit)s
"""


def list_inlet(session: Session, *, limit: int) -> list[Any]:
    """List what waits, the oldest first, then what was refused, the latest first."""
    return rows(session, WAITING, limit=limit) + rows(session, REFUSED, limit=limit)
