"""Seed a development tenant: keys, a simulator route, a published template, the sample policies. Repeatable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.configure import (
    NewRoute,
    NewTemplate,
    add_key,
    add_route,
    add_tenant,
    find_tenant,
    publish_template,
    store_policy,
)
from app.ground.db import rows

TENANT: Final = "demo"
KEYS: Final = {
    "seeded": ("events:write", "events:read", "history:read"),
    "seeded-operator": ("events:read", "history:read", "operator"),
}
ROUTES = "SELECT settings ->> 'base_url' AS base_url, receipt_url, priority FROM route WHERE tenant_id = %(tenant)s"
TEMPLATES = "SELECT 1 FROM template_version WHERE tenant_id = %(tenant)s AND name = %(name)s"
POLICIES = "SELECT 1 FROM policy_version WHERE tenant_id = %(tenant)s"

TEMPLATE = NewTemplate(
    name="class-opening",
    category="transactional",
    variables=["class"],
    bodies={"en": "A seat opened in {{ class }}. Open the app to book it."},
    default_locale="en",
)
CONFIRMATION: Final = NewTemplate(
    name="opt-out-confirmation",
    category="transactional",
    variables=[],
    bodies={"en": "You are unsubscribed and will get no more messages from us. Reply START to get them again."},
    default_locale="en",
)


@dataclass(frozen=True, slots=True)
class Seeded:
    """What a person needs to try the seeded tenant."""

    tenant: str
    api_key: str = field(repr=False)
    operator_key: str = field(repr=False)


def seed(session: Session, *, samples: Sequence[Mapping[str, Any]], route: NewRoute, public_url: str, now: datetime) -> Seeded:
    """Make what is missing of the development tenant; what is there stays."""
    tenant_id = find_tenant(session, name=TENANT) or add_tenant(session, name=TENANT, now=now)
    keys = [
        add_key(session, tenant_id=tenant_id, name=name, scopes=scopes, derived=True, now=now) for name, scopes in KEYS.items()
    ]
    if not rows(session, POLICIES, tenant=tenant_id):
        for sample in _from_now_on(samples, now):
            store_policy(session, tenant_id=tenant_id, raw=sample, now=now)
    for template in (TEMPLATE, CONFIRMATION):
        if not rows(session, TEMPLATES, tenant=tenant_id, name=template.name):
            publish_template(session, tenant_id=tenant_id, template=template, now=now)
    _seed_route(session, tenant_id, route, public_url, now)
    return Seeded(TENANT, *keys)


def _from_now_on(samples: Sequence[Mapping[str, Any]], now: datetime) -> list[Mapping[str, Any]]:
    """Choose the sample that has begun last, and those that will: each takes over by itself."""
    by_start = sorted(samples, key=_starts_at)
    begun_count = sum(_starts_at(sample) <= now for sample in by_start)
    return by_start[max(begun_count - 1, 0) :]


def _starts_at(sample: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(sample["effective_from"])


def _seed_route(session: Session, tenant_id: UUID, route: NewRoute, public_url: str, now: datetime) -> None:
    """Routes are immutable: when the simulator or we moved, a new route goes before the old ones."""
    found = rows(session, ROUTES, tenant=tenant_id)
    here = [r for r in found if r.base_url == route.settings["base_url"] and r.receipt_url.startswith(public_url + "/")]
    if here:
        return
    name = route.name if not found else f"{route.name}-{len(found) + 1}"
    priority = min((r.priority for r in found), default=route.priority + 1) - 1
    moved = NewRoute(
        name=name,
        carrier=route.carrier,
        sender=route.sender,
        settings=route.settings,
        credentials=route.credentials,
        rate_per_second=route.rate_per_second,
        burst_count=route.burst_count,
        priority=priority,
    )
    add_route(session, tenant_id=tenant_id, route=moved, public_url=public_url, now=now)
