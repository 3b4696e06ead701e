"""Confirm an opt-out, once: a text like any other, that is exempt from the one suppression that it confirms."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.accept import Refused, accept
from app.ledger.decide import REPLY
from app.ledger.request import NewEvent, read_request

PUBLISHED = "SELECT 1 FROM template_version WHERE tenant_id = %(tenant)s AND name = %(name)s LIMIT 1"

TEMPLATE: Final = "opt-out-confirmation"
# What comes later than five minutes after a STOP is presumed to be another message (47 CFR 64.1200(a)(12)).
WITHIN: Final = timedelta(minutes=5)


class Confirmation(StrEnum):
    """What became of the confirmation of an opt-out."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It was asked, and confirmed, before."""
    CARRIER = "carrier"
    """The carrier answers."""
    NOBODY = "nobody"
    """No recipient of the tenant has this address: nobody wrote to it in our name."""
    NO_TEMPLATE = "no_template"
    """The tenant has published no text for it."""
    REFUSED = "refused"
    """The tenant's text cannot be given to this person."""


def confirm(
    session: Session, *, tenant_id: UUID, inbound_id: UUID, suppression_id: UUID, ref: str, number: str, now: datetime
) -> Confirmation:
    """Accept the confirmation of an opt-out as an event of its own, with its own decision."""
    if not rows(session, PUBLISHED, tenant=tenant_id, name=TEMPLATE):
        return Confirmation.NO_TEMPLATE
    request = read_request(
        {
            "type": "opt_out.confirmation",
            "subject": str(inbound_id),
            "recipient": {"ref": ref, "sms": number},
            "template": TEMPLATE,
            "data": {},
            "expires_at": (now + WITHIN).isoformat(),
        }
    )
    if not isinstance(request, NewEvent):
        return Confirmation.REFUSED
    accepted = accept(session, [request], tenant_id=tenant_id, source=REPLY, confirms=suppression_id, now=now)
    return Confirmation.REFUSED if isinstance(accepted[0], Refused) else Confirmation.ACCEPTED
