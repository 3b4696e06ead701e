"""Policy versions as the flows use them: parsed documents, each read once per process, since none ever changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from policy.document import Document, parse

READ = "SELECT id, document FROM policy_version WHERE id = ANY(%(ids)s::uuid[])"


@dataclass(frozen=True, slots=True)
class InForce:
    """A policy version and its parsed document."""

    id: UUID
    document: Document

    @property
    def label(self) -> str:
        """Name it as the API does: name@version."""
        return f"{self.document.name}@{self.document.version}"

    def until(self, ends_at: datetime | None) -> InForce:
        """Give it as it stands in its tenant's line: with the start of the next version as its end, where it names none."""
        if ends_at == self.document.effective_until:
            return self
        return InForce(self.id, replace(self.document, effective_until=ends_at))


_CACHE: dict[UUID, InForce] = {}


def read_policies(session: Session, ids: Iterable[UUID | None]) -> Mapping[UUID, InForce]:
    """Read these versions; None is passed over, as is an id that is not there."""
    wanted = {i for i in ids if i is not None}
    missing = sorted(wanted - _CACHE.keys())
    if missing:
        _CACHE.update({row.id: InForce(row.id, parse(row.document)) for row in rows(session, READ, ids=missing)})
    return {i: _CACHE[i] for i in wanted if i in _CACHE}
