"""Access: find the API key that a caller presents, and say whether it opens anything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.keys import same_bytes

FIND = "SELECT id, tenant_id, secret_hash, scopes, revoked_at FROM api_key WHERE id = %(id)s"

NOBODYS: Final = b"\0" * 32
"""Compared when there is no such key, so that an unknown id takes as long as a wrong secret."""


@dataclass(frozen=True, slots=True)
class ApiKeyRow:
    """A key as it is kept."""

    id: UUID
    tenant_id: UUID
    secret_hash: bytes = field(repr=False)
    scopes: frozenset[str]
    is_revoked: bool


def find_key(session: Session, key_id: UUID) -> ApiKeyRow | None:
    """Find a key by its id, revoked or not; never cached, so that a revocation acts at once."""
    for row in rows(session, FIND, id=key_id):
        return ApiKeyRow(row.id, row.tenant_id, bytes(row.secret_hash), frozenset(row.scopes), row.revoked_at is not None)
    return None


def opens(key: ApiKeyRow | None, *, secret_hash: bytes) -> bool:
    """Say whether a presented secret is this key's, and the key still counts; None costs the same."""
    same = same_bytes(key.secret_hash if key else NOBODYS, secret_hash)
    return same and key is not None and not key.is_revoked
