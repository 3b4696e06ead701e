"""Write to a number of ours, as a carrier hands it over."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hmac import digest
from typing import Any, Final
from urllib.parse import urlencode

import httpx
from werkzeug.test import TestResponse

from app.desk.configure import NewTemplate, publish_template
from app.ground.db import rows
from app.ground.ids import new_id
from tests.making import ACCOUNT, ANNA, SENDER, House, clock, committing
from tests.web.calling import Api, body_of

CONFIRMATION: Final = NewTemplate(
    name="opt-out-confirmation",
    category="transactional",
    variables=[],
    bodies={"en": "You are unsubscribed."},
    default_locale="en",
)
OURS: Final = {"opt_out_confirmation": "daybook"}
"""The settings of a route whose carrier answers no STOP."""


def signed(house: House, form: Mapping[str, str]) -> str:
    """Sign a text as Twilio does, over the URL that the route says."""
    url = house.receipt_url.replace("/v1/receipts/", "/v1/inbound/")
    told = url + "".join(name + form[name] for name in sorted(form))
    return b64encode(digest(ACCOUNT.auth_token.encode(), told.encode(), "sha1")).decode()


def text_form(body: str, *, sender: str = ANNA, sid: str | None = None, **more: str) -> dict[str, str]:
    """Fill in what Twilio tells of an incoming message."""
    return {"MessageSid": sid or f"SM{new_id().hex}", "From": sender, "To": SENDER, "Body": body} | more


def write(api: Api, body: str, *, signature: str | None = None, **changes: Any) -> TestResponse:
    """Hand over a text by Twilio's form."""
    form = text_form(body, **changes)
    headers = {"X-Twilio-Signature": signed(api.house, form) if signature is None else signature}
    return api.client.post(f"/v1/inbound/{api.house.route_id}", data=form, headers=headers)


def write_over(url: str, house: House, body: str) -> int:
    """Hand over a text over a socket; give the status."""
    form = text_form(body)
    headers = {"X-Twilio-Signature": signed(house, form), "Content-Type": "application/x-www-form-urlencoded"}
    answer = httpx.post(
        f"{url}/v1/inbound/{house.route_id}", content=urlencode(form), headers=headers, timeout=30, trust_env=False
    )
    return answer.status_code


def inbox(api: Api, query: str = "") -> dict[str, Any]:
    """Read a page of what people wrote."""
    return body_of(api.get(f"/v1/inbound{query}"))


def standing(api: Api) -> list[tuple[str, bool]]:
    """Read what was ever suppressed and no lift names, as (source, everything)."""
    query = """SELECT source, everything FROM suppression s WHERE act = 'suppress'
               AND NOT EXISTS (SELECT FROM suppression l WHERE s.id = ANY(l.lifts)) ORDER BY id"""
    with committing(api.engine) as session:
        return [(row.source, row.everything) for row in rows(session, query)]


def confirmations(api: Api) -> list[str | None]:
    """Read what became of the confirmation of each text, the oldest first."""
    with committing(api.engine) as session:
        return [row.confirmation for row in rows(session, "SELECT confirmation FROM inbound ORDER BY id")]


def publish_confirmation(api: Api) -> None:
    """Publish the text that confirms an opt-out."""
    with committing(api.engine) as session:
        publish_template(session, tenant_id=api.house.tenant_id, template=CONFIRMATION, now=clock(session))
