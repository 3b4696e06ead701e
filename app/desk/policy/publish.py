"""Publish a policy version: immutable, hashed, with owner and dates, and at any instant exactly one in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.desk.policy.line import AHEAD, Fit, StartsTooSoon, fit, read_line
from app.ground.db import rows
from app.ground.ids import new_id
from models.rules import PolicyVersion
from policy.document import Document, parse
from policy.findings import rfc3339

# Publishers of one tenant go one by one: whoever waited here reads the line with the winner's version
# in it, in a later statement and so with a fresh snapshot. No other verb locks this row.
LOCK = "SELECT id FROM tenant WHERE id = %(tenant)s FOR NO KEY UPDATE"


@dataclass(frozen=True, slots=True)
class Published:
    """A version that now stands in the line."""

    id: UUID
    document: Document
    fit: Fit


def publish(
    session: Session, *, tenant_id: UUID, raw: Mapping[str, Any], actor: str, reason: str = "", now: datetime
) -> Published:
    """Publish a document; raises InvalidDocument, AlreadyPublished, PolicyOverlaps, PolicyGap or StartsTooSoon.

    A tenant's first version may start at any time. Every other starts at least a minute ahead, so that no
    decision that is held somewhere was taken under another one than the one in force.
    """
    document = parse(raw)
    rows(session, LOCK, tenant=tenant_id)
    line = read_line(session, tenant_id=tenant_id)
    place = fit(line, document, now=now)
    if line and document.effective_from < now + AHEAD:
        raise StartsTooSoon(
            f"{document.label} would start at {rfc3339(document.effective_from)}; "
            f"it must start at least {AHEAD.seconds} s from now, after {rfc3339(now + AHEAD)}"
        )
    published = Published(_insert(session, tenant_id, document, raw, now), document, place)
    subject = {"policy_version_id": str(published.id), "policy": document.label, "sha256": document.sha256}
    subject |= {"owner": document.owner, "effective_from": rfc3339(document.effective_from)}
    record_action(session, tenant_id=tenant_id, actor=actor, verb="publish_policy", subject=subject, reason=reason, now=now)
    return published


def store(session: Session, *, tenant_id: UUID, raw: Mapping[str, Any], now: datetime) -> UUID:
    """Store a version of a tenant that is being set up: it must fit into the line, and may start at any time."""
    document = parse(raw)
    rows(session, LOCK, tenant=tenant_id)
    fit(read_line(session, tenant_id=tenant_id), document, now=now)
    return _insert(session, tenant_id, document, raw, now)


def _insert(session: Session, tenant_id: UUID, document: Document, raw: Mapping[str, Any], now: datetime) -> UUID:
    version_id = new_id()
    session.add(
        PolicyVersion(
            id=version_id,
            tenant_id=tenant_id,
            name=document.name,
            version=document.version,
            sha256=document.sha256,
            document=dict(raw),
            owner=document.owner,
            reviewer=document.reviewer,
            status=document.status,
            effective_from=document.effective_from,
            effective_until=document.effective_until,
            published_at=now,
        )
    )
    session.flush()
    return version_id
