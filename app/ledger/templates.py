"""Published texts as the flows use them, each read once per process, since none ever changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import as_json, rows

READ = """
SELECT t.tenant_id, t.name, t.version, t.bodies, t.default_locale
FROM template_version t
JOIN json_to_recordset(%(wanted)s::json) AS n (tenant_id uuid, name text, version integer) USING (tenant_id, name, version)
"""

TemplateKey: TypeAlias = tuple[UUID, str, int]
"""Tenant, name, version."""


@dataclass(frozen=True, slots=True)
class Texts:
    """What one version of a template says, by locale."""

    bodies: Mapping[str, str]
    default_locale: str


_CACHE: dict[TemplateKey, Texts] = {}


def read_templates(session: Session, keys: Iterable[TemplateKey]) -> Mapping[TemplateKey, Texts]:
    """Read these versions; one that is not there is left out."""
    wanted = set(keys)
    missing = sorted(wanted - _CACHE.keys())
    if missing:
        asked = as_json([{"tenant_id": t, "name": name, "version": version} for t, name, version in missing])
        found = rows(session, READ, wanted=asked)
        _CACHE.update({(row.tenant_id, row.name, row.version): Texts(row.bodies, row.default_locale) for row in found})
    return {key: _CACHE[key] for key in wanted if key in _CACHE}
