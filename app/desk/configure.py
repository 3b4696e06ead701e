"""Configure a tenant: keys, routes, templates and its first policy version. All but keys are immutable once written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy.orm import Session

from app.desk.policy.publish import store
from app.ground.db import insertion, rows, run_together
from app.ground.errors import DaybookError
from app.ground.ids import new_id
from app.ground.keys import keyed_hash, new_api_key
from app.people.vault import wrap
from app.render import variables_of
from models.desk import ApiKey, Tenant
from models.rules import Route, TemplateVersion

TENANT = "SELECT id FROM tenant WHERE name = %(name)s"
LAST_TEMPLATE = (
    "SELECT coalesce(max(version), 0) AS version FROM template_version WHERE tenant_id = %(tenant)s AND name = %(name)s"
)
REVOKE = (
    "UPDATE api_key SET revoked_at = %(now)s WHERE tenant_id = %(tenant)s AND id = %(id)s AND revoked_at IS NULL RETURNING id"
)
SCOPES: Final = ("events:write", "events:read", "history:read", "operator")


class NoSuchTenant(DaybookError):
    """There is no tenant of this name."""


class BadTemplateVersion(DaybookError):
    """A body uses a variable that the version does not declare, or the default locale has no body."""


def find_tenant(session: Session, *, name: str) -> UUID | None:
    """Find a tenant by name."""
    found = rows(session, TENANT, name=name)
    return UUID(str(found[0].id)) if found else None


def get_tenant(session: Session, *, name: str) -> UUID:
    """Get a tenant by name; NoSuchTenant when there is none."""
    tenant_id = find_tenant(session, name=name)
    if tenant_id is None:
        raise NoSuchTenant(f"there is no tenant named {name!r}; `daybook seed` makes one")
    return tenant_id


def add_tenant(session: Session, *, name: str, now: datetime) -> UUID:
    """Add a tenant."""
    tenant_id = new_id()
    run_together(session, [insertion(Tenant, [{"id": tenant_id, "name": name, "created_at": now}])])
    return tenant_id


def add_key(session: Session, *, tenant_id: UUID, name: str, scopes: Sequence[str], derived: bool = False, now: datetime) -> str:
    """Make an API key and return its text, which is not kept.

    A derived key follows from the hash ring, the tenant and the name: asking again gives the same
    key, so that a development machine keeps its key over restarts.
    """
    if derived:
        material = keyed_hash(f"api-key/{name}", tenant_id.bytes).digest
        key = new_api_key(UUID(bytes=keyed_hash("api-key-id", material).digest[:16]), material)
    else:
        key = new_api_key(new_id())
    if session.get(ApiKey, key.id) is not None:
        return key.text
    row = ApiKey(
        id=key.id,
        tenant_id=tenant_id,
        name=name,
        secret_hash=key.secret_hash,
        scopes=list(scopes),
        created_at=now,
        revoked_at=None,
    )
    session.add(row)
    session.flush()
    return key.text


def revoke_key(session: Session, *, tenant_id: UUID, key_id: UUID, now: datetime) -> bool:
    """Revoke a key; False when the tenant has no such living key."""
    return bool(rows(session, REVOKE, tenant=tenant_id, id=key_id, now=now))


@dataclass(frozen=True, slots=True)
class NewRoute:
    """A route to be added."""

    name: str
    carrier: str
    sender: str
    settings: Mapping[str, str]
    credentials: Mapping[str, str] = field(repr=False)
    receipt_url: str | None = None
    """None: under the public URL, by the route's own id."""
    channel: str = "sms"
    countries: Sequence[str] = ()
    rate_per_second: int = 50
    burst_count: int = 50
    priority: int = 100


def add_route(session: Session, *, tenant_id: UUID, route: NewRoute, public_url: str, now: datetime) -> UUID:
    """Add a route; its credentials are sealed under the key ring."""
    route_id = new_id()
    session.add(
        Route(
            id=route_id,
            tenant_id=tenant_id,
            name=route.name,
            channel=route.channel,
            carrier=route.carrier,
            sender=route.sender,
            receipt_url=route.receipt_url or f"{public_url}/v1/receipts/{route_id}",
            settings=dict(route.settings),
            sealed_credentials=wrap(orjson.dumps(dict(route.credentials))),
            countries=list(route.countries),
            rate_per_second=route.rate_per_second,
            burst_count=route.burst_count,
            priority=route.priority,
            created_at=now,
        )
    )
    session.flush()
    return route_id


@dataclass(frozen=True, slots=True)
class NewTemplate:
    """A template version to be published."""

    name: str
    category: str
    variables: Sequence[str]
    bodies: Mapping[str, str]
    """locale -> body."""
    default_locale: str
    channels: Sequence[str] = ("sms",)


def publish_template(session: Session, *, tenant_id: UUID, template: NewTemplate, now: datetime) -> int:
    """Publish the next version of a template; return its number."""
    if template.default_locale not in template.bodies:
        raise BadTemplateVersion(f"there is no body for the default locale {template.default_locale!r}")
    for locale, body in template.bodies.items():
        undeclared = variables_of(body) - set(template.variables)
        if undeclared:
            raise BadTemplateVersion(f"the body for {locale!r} uses {', '.join(sorted(undeclared))}, which it does not declare")
    version = rows(session, LAST_TEMPLATE, tenant=tenant_id, name=template.name)[0].version + 1
    session.add(
        TemplateVersion(
            id=new_id(),
            tenant_id=tenant_id,
            name=template.name,
            version=version,
            category=template.category,
            variables=list(template.variables),
            channels=list(template.channels),
            bodies=dict(template.bodies),
            default_locale=template.default_locale,
            published_at=now,
        )
    )
    session.flush()
    return int(version)


def store_policy(session: Session, *, tenant_id: UUID, raw: Mapping[str, Any], now: datetime) -> UUID:
    """Store a policy version of a tenant that is being set up; everybody else publishes (`app.desk.policy.publish`)."""
    return store(session, tenant_id=tenant_id, raw=raw, now=now)
