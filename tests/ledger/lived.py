"""A ledger that has lived a little: every way a text can go, really accepted, dispatched, handed off and heard of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from psycopg.types.json import Jsonb
from sqlalchemy import Engine

from app.carriers.base import Call
from app.desk.cancel import cancel_event
from app.desk.cancellation import begin_cancellation, cancel_occasion, occasion_of
from app.flows.dispatch import dispatch
from app.flows.feed import sequence_feed
from app.flows.handoff import hand_off
from app.flows.inbound import take_inbound
from app.flows.inlet import take_inlet
from app.flows.receipts import take_receipt
from app.ground.db import rows, transact
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.words import Channel, Lane
from simulator.dialect import Inbound, ReceiptCall, inbound_call
from simulator.transport import SimulatorTransport
from tests.making import ACCOUNT, House, ask, carriers_of, clock, committing, make_event, make_house, simulated

NUMBERS: Final = {
    "delivered": "+12015550123",
    "unknown": "+12015550124",
    "refused": "+12015550125",
    "throttled": "+12015550126",
    "waiting": "+12015550127",
    "suppressed": "+12015550128",
    "cancelled": "+12015550129",
    "close_requested": "+12015550130",
    "submitted": "+12015550131",
    "bounced": "+12015550132",
}
RULES: Final = (
    {"match": {"to": NUMBERS["unknown"]}, "then": {"respond": "drop", "receipts": []}},
    {"match": {"to": NUMBERS["refused"]}, "then": {"code": 21211}},
    {"match": {"to": NUMBERS["throttled"]}, "then": {"code": 20429, "retry_after": 3600}},
    {"match": {"to": NUMBERS["close_requested"]}, "then": {"receipts": []}},
    {"match": {"to": NUMBERS["submitted"]}, "then": {"receipts": []}},
    {"match": {"to": NUMBERS["bounced"]}, "then": {"receipts": "undelivered"}},
)
HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Lived:
    """A tenant and its events, by what became of them."""

    house: House
    events: Mapping[str, UUID]
    """`joined` was promoted when `cancelled` was; `cooling` waits for the cooldown of `delivered`."""


def live(engine: Engine) -> Lived:
    """Let a tenant live for a moment; everything is committed."""
    with committing(engine) as session:
        now = clock(session)
        house = make_house(session, now=now)
        held = {"not_before": (now + HOUR).isoformat()}
        suppress(
            session,
            tenant_id=house.tenant_id,
            channel=Channel.SMS,
            address_hash=address_hash(Channel.SMS, NUMBERS["suppressed"]).digest,
            source="api",
            cause_id=None,
            now=now,
        )
        events = {
            name: make_event(
                session, house, now=now, ref=name, sms=sms, **(held if name in {"waiting", "cancelled"} else {})
            ).event_id
            for name, sms in NUMBERS.items()
        }
        again = {"ref": "cancelled", "sms": NUMBERS["cancelled"], "key": "again", **held}
        events["joined"] = make_event(session, house, now=now, **again).event_id
        off = {"ref": "called_off", "sms": "+12015550134", "subject": "c-3", **held}
        events["called_off"] = make_event(session, house, now=now, **off).event_id
        events["joined_off"] = make_event(session, house, now=now, key="again-off", **off).event_id
    carrier = simulated(*RULES, at=now)
    _send(carrier)
    _cancel(house, events["cancelled"])
    _cancel(house, events["close_requested"])
    _call_off(house, "c-3")
    _hear(house, carrier)
    with committing(engine) as session:
        second = {"ref": "delivered", "sms": NUMBERS["delivered"], "subject": "c-2"}
        events["cooling"] = make_event(session, house, now=clock(session), **second).event_id
    _take_inlet(house)
    _answer(house)
    sequence_feed()
    return Lived(house, events)


def _send(carrier: SimulatorTransport) -> None:
    for page in dispatch(Lane.URGENT):
        hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=carriers_of(carrier))


def _cancel(house: House, event_id: UUID) -> None:
    transact(lambda tx: cancel_event(tx.session, tenant_id=house.tenant_id, event_id=event_id, actor="test", now=tx.now))


def _call_off(house: House, subject: str) -> None:
    asked = occasion_of("class.opening", subject)
    begun = transact(
        lambda tx: begin_cancellation(
            tx.session, tenant_id=house.tenant_id, asked=asked, reason="test", actor="test", key=None, now=tx.now
        )
    )
    cancel_occasion(begun)


def _hear(house: House, carrier: SimulatorTransport) -> None:
    """Let the carrier call us: about ours, about nobody's, and one call that nobody signed."""
    calls = [called(c) for c in carrier.advance(5)]
    for call in calls:
        take_receipt(house.route_id, call)
    take_receipt(house.route_id, Call("POST", calls[0].query, {}, calls[0].body))


def called(receipt: ReceiptCall) -> Call:
    """Take a simulated receipt for the call that it is."""
    return Call("POST", urlsplit(receipt.url).query.encode(), receipt.headers, receipt.body)


def _answer(house: House) -> None:
    """Let somebody write to us."""
    url = house.receipt_url.replace("/v1/receipts/", "/v1/inbound/")
    told = Inbound(NUMBERS["submitted"], "+15005550006", "See you there")
    text = inbound_call(ACCOUNT, url, sid="SM1", told=told)
    take_inbound(house.route_id, Call("POST", b"", text.headers, text.body))


INSERT: Final = "INSERT INTO inlet (tenant, request) VALUES (%(tenant)s, %(request)s)"


def put_in_inlet(tenant: str, request: Mapping[str, Any]) -> None:
    """Insert a request as another program would."""
    transact(lambda tx: rows(tx.session, INSERT, tenant=tenant, request=Jsonb(dict(request))))


def _take_inlet(house: House) -> None:
    put_in_inlet(
        house.tenant, ask(ref="inlet", sms="+12015550133", not_before="2030-01-01T00:00:00Z", expires_at="2030-02-01T00:00:00Z")
    )
    put_in_inlet(house.tenant, ask(ref="inlet", sms="12"))
    take_inlet()
