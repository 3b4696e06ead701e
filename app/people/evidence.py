"""Evidence: rows that are known by what they say, so that telling the same twice, or importing a file again, is one row."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy.orm import Session

from app.ground.db import Statement, insertion, rows
from app.people.persons import write_down
from models.base import Base

# Of two that tell the same at once, one writes, and the other finds that row afterwards.
ONCE: Final = "ON CONFLICT (tenant_id, content_hash) DO NOTHING RETURNING id, content_hash"
KNOWN: Final = "SELECT id, content_hash FROM {table} WHERE tenant_id = %(tenant)s AND content_hash = ANY(%(hashes)s::bytea[])"


@dataclass(frozen=True, slots=True)
class Kept:
    """It is in the books: since now, or since it was told before."""

    id: UUID
    is_new: bool


def content_hash(content: Mapping[str, object]) -> bytes:
    """Hash what a row says. An address is in it as its keyed hash only, so the digest gives nothing away."""
    told = orjson.dumps(content, default=lambda value: bytes(value).hex(), option=orjson.OPT_SORT_KEYS | orjson.OPT_UTC_Z)
    return hashlib.sha256(told).digest()


def inserted_once(table: type[Base], told: Sequence[Mapping[str, Any]]) -> Statement:
    """Write the INSERT of rows that say something new, each once, in the order of their unique key."""
    by_content = {row["content_hash"]: row for row in reversed(told)}
    return insertion(table, [by_content[digest] for digest in sorted(by_content)], tail=ONCE)


def keep_once(
    session: Session, table: type[Base], told: Sequence[Mapping[str, Any]], *, before: Sequence[Statement], tenant_id: UUID
) -> list[Kept]:
    """Run `before`, then keep rows; say of each which it is and whether it says something new."""
    found = write_down(session, [*before, inserted_once(table, told)])[-1]
    written = {bytes(row.content_hash): row.id for row in found}
    missing = sorted({row["content_hash"] for row in told} - set(written))
    found = rows(session, KNOWN.format(table=table.__tablename__), tenant=tenant_id, hashes=missing) if missing else []
    known = {bytes(row.content_hash): row.id for row in found}
    kept: list[Kept] = []
    for digest in (row["content_hash"] for row in told):
        is_new = digest in written
        if is_new:
            known[digest] = written.pop(digest)  # of a page's own repetitions the first is the new one
        kept.append(Kept(known[digest], is_new))
    return kept
