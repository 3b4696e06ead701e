"""The tenant that is measured: its rules, templates and route, its people, and what it asks."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from urllib.parse import quote, urlencode
from uuid import UUID

import yaml

from app.carriers.base import Call, RouteSettings
from app.carriers.null import Null
from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.flows.dispatch import dispatch
from app.flows.handoff import hand_off
from app.ground.config import settings
from app.ground.db import Tx, transact
from app.ground.errors import DaybookError
from app.ledger.accept import Refused, accept
from app.ledger.request import NewEvent, read_request
from app.people.contacts import InvalidNumber, read_number
from bench.house import ROOT
from policy.words import Lane

SAMPLE: Final = ROOT / "policy" / "documents" / "sample-2026-11-01.yaml"
SENDER: Final = "+12015550100"
ACCOUNT: Final = "AC00000000000000000000000000000000"
SCOPES: Final = ("events:write", "events:read", "history:read")
NOWHERE: Final = "http://127.0.0.1:9"
"""Nobody listens there."""
TOKEN: Final = "figures"  # noqa: S105 - opens nothing: the carrier behind it is in this process
# One lane each, so that both of the Procfile's workers hand off.
TEMPLATES: Final = {"class-opening": "transactional", "class-change": "operational"}
URGENT: Final = "class-opening"
BULK: Final = "class-change"
PAGE: Final = 500
# More than any figure sends: what is measured is the work, not the wait for a carrier's rate.
RATE: Final = 1_000_000


class NotSoMany(DaybookError):
    """There are fewer fictitious numbers than events asked for."""


class NotAccepted(DaybookError):
    """An event of the figures was refused."""


@dataclass(frozen=True, slots=True)
class Town:
    """One tenant, its key, and the one route that its texts take."""

    tenant_id: UUID
    route_id: UUID
    api_key: str = field(repr=False)

    @property
    def receipt_path(self) -> str:
        """Where the route's carrier calls."""
        return f"/v1/receipts/{self.route_id}"


def settle(name: str, *, carrier: str, base_url: str = NOWHERE) -> Town:
    """Make a tenant with the sample's rules, hours apart, so that a figure is the same at night."""
    return transact(lambda tx: _settle(tx, name, carrier, base_url))


def _settle(tx: Tx, name: str, carrier: str, base_url: str) -> Town:
    session, now = tx.session, tx.now
    tenant_id = add_tenant(session, name=name, now=now)
    key = add_key(session, tenant_id=tenant_id, name="figures", scopes=SCOPES, now=now)
    policy: dict[str, Any] = yaml.safe_load(SAMPLE.read_text()) | {"effective_from": "2020-01-01T00:00:00Z"}
    for rules in policy["categories"].values():
        rules.pop("hours", None)
    store_policy(session, tenant_id=tenant_id, raw=policy, now=now)
    for template, category in TEMPLATES.items():
        bodies = {"en": "A seat opened in {{ class }}. Open the app to book it."}
        publish_template(session, tenant_id=tenant_id, template=NewTemplate(template, category, ["class"], bodies, "en"), now=now)
    route = NewRoute(
        name=carrier,
        carrier=carrier,
        sender=SENDER,
        settings={"account_sid": ACCOUNT, "base_url": base_url, "contacts": "nobody"},
        credentials={"auth_token": TOKEN},
        rate_per_second=RATE,
        burst_count=RATE,
    )
    route_id = add_route(session, tenant_id=tenant_id, route=route, public_url=settings().public_url, now=now)
    return Town(tenant_id, route_id, key)


@cache
def numbers() -> tuple[str, ...]:
    """Give all fictitious numbers (555-01xx) of the area codes that the United States use."""
    areas = [area for area in range(201, 990) if _is_american(f"+1{area}5550100")]
    return tuple(f"+1{area}55501{n:02d}" for area in areas for n in range(100))


def _is_american(number: str) -> bool:
    try:
        return read_number(number).country == "US"
    except InvalidNumber:
        return False


def events(count: int, *, template: str | None = None) -> list[dict[str, Any]]:
    """Write requests for so many people, each with a number of its own; the templates in turn, unless one is named."""
    if count > len(numbers()):
        raise NotSoMany(f"there are {len(numbers())} fictitious numbers; ask for at most so many events")
    names = [template] if template else list(TEMPLATES)
    return [
        {
            "type": "class.opening",
            "subject": f"c-{n:06d}",
            "recipient": {"ref": f"m-{n:06d}", "sms": number, "time_zone": "America/New_York", "locale": "en-US"},
            "template": names[n % len(names)],
            "data": {"class": "Spin 18:00"},
            "channels": ["sms"],
        }
        for n, number in enumerate(numbers()[:count])
    ]


def accept_all(town: Town, count: int, *, template: str | None = None) -> None:
    """Accept so many events in this process, in pages, past HTTP."""
    asked = [read for event in events(count, template=template) if isinstance(read := read_request(event), NewEvent)]
    for start in range(0, count, PAGE):
        transact(lambda tx, page=asked[start : start + PAGE]: _accept(tx, town, page))  # type: ignore[misc]  # mypy reads no default into a lambda


def _accept(tx: Tx, town: Town, page: Sequence[NewEvent]) -> None:
    results = accept(tx.session, page, tenant_id=town.tenant_id, source="api", now=tx.now)
    if any(isinstance(result, Refused) for result in results):
        raise NotAccepted("the rules of the figures refuse an event")


def hand_off_all() -> None:
    """Hand off everything that is due to the null carrier, in this process, whatever its route says."""
    carriers: dict[UUID, Null] = {}

    def carrier_of(route: RouteSettings) -> Null:
        return carriers.setdefault(route.id, Null(route))

    for lane in Lane:
        while pages := dispatch(lane):
            for page in pages:
                hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=carrier_of)


def receipt(town: Town, attempt_key: str, remote_id: str, address: str) -> Call:
    """Write the callback that says an attempt was delivered, signed as Twilio signs."""
    fields = {
        "AccountSid": ACCOUNT,
        "ApiVersion": "2010-04-01",
        "From": SENDER,
        "MessageSid": remote_id,
        "MessageStatus": "delivered",
        "SmsSid": remote_id,
        "SmsStatus": "delivered",
        "To": address,
    }
    query = f"key={quote(attempt_key, safe='')}"
    signed = f"{settings().public_url}{town.receipt_path}?{query}" + "".join(f"{n}{v}" for n, v in sorted(fields.items()))
    signature = base64.b64encode(hmac.digest(TOKEN.encode(), signed.encode(), "sha1")).decode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": signature}
    return Call("POST", query.encode(), headers, urlencode(fields).encode())
