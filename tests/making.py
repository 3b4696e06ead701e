"""Factories for the tests of the books: the real verbs make them, so that none is in a state the code cannot reach."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import httpx
import yaml
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.carriers.base import Carrier, RouteSettings
from app.carriers.registry import CARRIERS
from app.desk.configure import NewRoute, NewTemplate, add_route, add_tenant, publish_template, store_policy
from app.flows.dispatch import Page, _claim
from app.ground.db import Tx, rows
from app.ground.ids import AttemptId, Lease, new_id
from app.ledger.accept import Refused, accept
from app.ledger.observe import Observed, Told, observe
from app.ledger.prepare import Handoff, Prepared, prepare
from app.ledger.request import NewEvent, read_request
from app.ledger.view import EventView
from policy.states import AttemptState
from policy.words import ErrorClass, Lane, Reason, Source
from simulator.dialect import Account
from simulator.transport import SimulatorTransport
from tests.awaiting import eventually

T = TypeVar("T")

NOON: Final = datetime(2026, 12, 1, 17, 0, tzinfo=UTC)  # a Tuesday, 12:00 in New York
ANNA: Final = "+12015550123"
BEN: Final = "+12015550124"
CLARE: Final = "+447700900123"
SENDER: Final = "+15005550006"
ACCOUNT: Final = Account()
SAMPLE: Final = Path(__file__).parent.parent / "policy" / "documents" / "sample-2026-11-01.yaml"
H: Final = timedelta(seconds=15)
BODY: Final = "A seat opened in {{ class }}."
TWILIO: Final = {"base_url": "http://carrier.test", "account_sid": ACCOUNT.sid}
KANNEL: Final = {"base_url": "http://carrier.test/cgi-bin/sendsms"}
SECRETS: Final = {
    "twilio": {"auth_token": ACCOUNT.auth_token},
    "kannel": {"username": "app", "password": "apppw", "receipt_token": "t"},
    "null": {},
}


@dataclass(frozen=True, slots=True)
class House:
    """A tenant with one route, one template and a policy."""

    tenant_id: UUID
    tenant: str
    route_id: UUID
    receipt_url: str


@dataclass(frozen=True, slots=True)
class Standing:
    """One accepted event on its one channel, and how far it was taken."""

    house: House
    event_id: UUID
    intent_id: UUID
    attempt_id: AttemptId
    lease: Lease | None = None
    handoff: Handoff | None = field(default=None, repr=False)


def sample(**transactional: object) -> dict[str, Any]:
    """Give the sample policy, in force since long ago, with changed rules for transactional."""
    raw: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    raw["effective_from"] = "2020-01-01T00:00:00Z"
    raw["categories"]["transactional"] |= transactional
    return raw


def make_house(
    session: Session,
    *,
    policy: Mapping[str, Any] | None = None,
    carrier: str = "twilio",
    settings: Mapping[str, str] | None = None,
    rate: int = 50,
    now: datetime = NOON,
) -> House:
    """Make a tenant that can send; `policy={}` leaves it without one."""
    name = f"tenant-{new_id().hex}"
    tenant_id = add_tenant(session, name=name, now=now)
    route_id = make_route(session, tenant_id, carrier=carrier, settings=settings, rate=rate, now=now)
    make_template(session, tenant_id, now=now)
    raw = sample() if policy is None else policy
    if raw:
        store_policy(session, tenant_id=tenant_id, raw=raw, now=now)
    return House(tenant_id, name, route_id, f"https://notify.example.test/v1/receipts/{route_id}")


def make_route(
    session: Session,
    tenant_id: UUID,
    *,
    carrier: str = "twilio",
    settings: Mapping[str, str] | None = None,
    rate: int = 50,
    priority: int = 100,
    countries: Sequence[str] = (),
    now: datetime = NOON,
) -> UUID:
    """Add a route that answers nowhere by itself: its receipts carry a public URL that only signatures know."""
    base = {"twilio": TWILIO, "kannel": KANNEL, "null": {"contacts": "nobody"}}[carrier]
    route = NewRoute(
        name=f"{carrier}-{new_id().hex}",
        carrier=carrier,
        sender=SENDER,
        settings={**base, **(settings or {})},
        credentials=SECRETS[carrier],
        rate_per_second=rate,
        priority=priority,
        countries=countries,
    )
    return add_route(session, tenant_id=tenant_id, route=route, public_url="https://notify.example.test", now=now)


def make_template(
    session: Session,
    tenant_id: UUID,
    *,
    name: str = "class-opening",
    category: str = "transactional",
    body: str = BODY,
    now: datetime = NOON,
) -> int:
    """Publish a text with one variable, `class`."""
    template = NewTemplate(name=name, category=category, variables=["class"], bodies={"en": body}, default_locale="en")
    return publish_template(session, tenant_id=tenant_id, template=template, now=now)


def ask(*, ref: str = "m-1", sms: str = ANNA, **changes: object) -> dict[str, Any]:
    """Write a request as an application would post it."""
    raw: dict[str, Any] = {
        "type": "class.opening",
        "subject": "c-1",
        "recipient": {"ref": ref, "sms": sms},
        "template": "class-opening",
        "data": {"class": "Spin 18:00"},
    }
    return raw | changes


def make_request(*, ref: str = "m-1", sms: str = ANNA, **changes: object) -> NewEvent:
    """Read a request that is well formed."""
    read = read_request(ask(ref=ref, sms=sms, **changes))
    assert isinstance(read, NewEvent), read
    return read


def accept_all(session: Session, house: House, *raws: Mapping[str, Any], now: datetime = NOON) -> list[EventView | Refused]:
    """Accept a page of requests as they are."""
    requests = [read_request(dict(raw)) for raw in raws]
    assert all(isinstance(r, NewEvent) for r in requests), requests
    return accept(session, [r for r in requests if isinstance(r, NewEvent)], tenant_id=house.tenant_id, source="api", now=now)


def make_event(session: Session, house: House, *, now: datetime = NOON, **changes: Any) -> EventView:
    """Accept one event."""
    view = accept_all(session, house, ask(**changes), now=now)[0]
    assert not isinstance(view, Refused), view
    return view


def make_queued(session: Session, house: House, *, now: datetime = NOON, **changes: Any) -> Standing:
    """Accept one event and name its first attempt."""
    view = make_event(session, house, now=now, **changes)
    intent_id = view.intents[0].intent_id
    return Standing(house, view.event_id, intent_id, AttemptId(attempts_of(session, intent_id)[-1].id))


def claim(session: Session, house: House, *, lane: Lane = Lane.URGENT, limit: int = 500, now: datetime = NOON) -> list[Page]:
    """Claim what is due on the house's route, at a time of our choosing."""
    return _claim(Tx(session, now, 0.0), lane=lane, route_id=house.route_id, limit=limit).pages


def make_leased(session: Session, house: House, *, now: datetime = NOON, **changes: Any) -> Standing:
    """Accept one event and lease its attempt."""
    return lease(session, make_queued(session, house, now=now, **changes), now=now)


def lease(session: Session, standing: Standing, *, now: datetime = NOON) -> Standing:
    """Lease an attempt that is due; whatever else is due on the route is leased with it."""
    pages = claim(session, standing.house, now=now)
    number = next(page.lease for page in pages if standing.attempt_id in page.attempt_ids)
    return Standing(standing.house, standing.event_id, standing.intent_id, standing.attempt_id, number)


def prepare_all(session: Session, *standings: Standing, now: datetime = NOON) -> Prepared:
    """Prepare attempts under the first one's lease."""
    number = standings[0].lease
    assert number is not None
    return prepare(session, [s.attempt_id for s in standings], lease=number, handoff_for=H, boottime=0.0, now=now)


def make_prepared(session: Session, house: House, *, now: datetime = NOON, **changes: Any) -> Standing:
    """Take one event as far as `prepared`."""
    return prepared_of(session, make_queued(session, house, now=now, **changes), now=now)


def prepared_of(session: Session, standing: Standing, *, now: datetime = NOON) -> Standing:
    """Take a due attempt as far as `prepared`."""
    leased = lease(session, standing, now=now)
    handoffs = prepare_all(session, leased, now=now).handoffs
    assert [h.attempt_id for h in handoffs] == [leased.attempt_id]
    return Standing(leased.house, leased.event_id, leased.intent_id, leased.attempt_id, leased.lease, handoffs[0])


def make_attempt(
    session: Session,
    house: House,
    state: AttemptState,
    *,
    remote_id: str | None = None,
    error_class: ErrorClass | None = None,
    now: datetime = NOON,
    **changes: Any,
) -> Standing:
    """Take one event to any state that a carrier's answer can bring."""
    standing = make_prepared(session, house, now=now, **changes)
    if state is not AttemptState.PREPARED:
        hear(session, standing, state, source=Source.ANSWER, remote_id=remote_id, error_class=error_class, now=now)
    return standing


def retry_of(session: Session, standing: Standing) -> Standing:
    """Name the newest attempt of an intent."""
    attempt = attempts_of(session, standing.intent_id)[-1]
    assert attempt.id != standing.attempt_id
    return Standing(standing.house, standing.event_id, standing.intent_id, AttemptId(attempt.id))


def told(
    standing: Standing,
    state: AttemptState,
    *,
    source: Source = Source.RECEIPT,
    error_class: ErrorClass | None = None,
    error_code: str | None = None,
    reason: Reason | None = None,
    remote_id: str | None = None,
    retry_after: float | None = None,
) -> Told:
    """Make a report about an attempt."""
    return Told(
        standing.attempt_id,
        state,
        source,
        error_class=error_class,
        error_code=error_code,
        reason=reason,
        remote_id=remote_id,
        retry_after_seconds=retry_after,
    )


def hear(session: Session, standing: Standing, state: AttemptState, *, now: datetime = NOON, **report: Any) -> list[Observed]:
    """Observe one report about an attempt."""
    return observe(session, [told(standing, state, **report)], now=now)


# What the books say.


def attempts_of(session: Session, intent_id: UUID) -> list[Any]:
    """Read an intent's attempts, oldest first."""
    return rows(session, "SELECT * FROM attempt WHERE intent_id = %(id)s ORDER BY ordinal", id=intent_id)


def attempt_of(session: Session, standing: Standing) -> Any:
    """Read one attempt."""
    return rows(session, "SELECT * FROM attempt WHERE id = %(id)s", id=standing.attempt_id)[0]


def intent_of(session: Session, standing: Standing) -> Any:
    """Read one intent."""
    return rows(session, "SELECT * FROM intent WHERE id = %(id)s", id=standing.intent_id)[0]


def outbox_of(session: Session, standing: Standing) -> Any:
    """Read an intent's outbox row, None when it has none; `infinity` reads as None."""
    found = rows(
        session,
        """SELECT attempt_id, nullif(due_at, 'infinity') AS due_at, reason, lease, leased_until, lost_lease_count, decision_id,
                  held_at FROM outbox WHERE intent_id = %(id)s""",
        id=standing.intent_id,
    )
    assert len(found) <= 1
    return found[0] if found else None


def transitions_of(session: Session, standing: Standing) -> list[tuple[str | None, str, str | None]]:
    """Read an intent's history as (from, to, reason), having seen that it is counted without a gap."""
    found = rows(session, "SELECT * FROM transition WHERE intent_id = %(id)s ORDER BY n", id=standing.intent_id)
    assert [t.n for t in found] == list(range(1, intent_of(session, standing).transition_count + 1))
    return [(t.from_state, t.state, t.reason) for t in found]


def reviews_of(session: Session, standing: Standing) -> list[str]:
    """Read the causes of an intent's open reviews."""
    found = rows(
        session, "SELECT cause FROM review WHERE intent_id = %(id)s AND settled_at IS NULL ORDER BY id", id=standing.intent_id
    )
    return [row.cause for row in found]


def slots_of(session: Session, standing: Standing) -> dict[str, Any]:
    """Read the slots on the gate of an intent's person."""
    found = rows(
        session,
        """SELECT g.slots FROM gate g JOIN intent i ON i.tenant_id = g.tenant_id AND i.gate_hash = g.address_hash
           WHERE i.id = %(id)s""",
        id=standing.intent_id,
    )
    return dict(found[0].slots) if found else {}


def count_of(session: Session, table: str, **where: object) -> int:
    """Count a table's rows."""
    condition = " AND ".join(f"{column} = %({column})s" for column in where) or "true"
    return int(rows(session, f"SELECT count(*) AS n FROM {table} WHERE {condition}", **where)[0].n)


# Real transactions, side by side.


@contextmanager
def committing(engine: Engine) -> Iterator[Session]:
    """Open a session whose work is committed at the end."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


def clock(session: Session) -> datetime:
    """Ask Postgres what time it is."""
    now: datetime = rows(session, "SELECT clock_timestamp() AS now")[0].now
    return now


@contextmanager
def beside(*work: Callable[[], T]) -> Iterator[list[Future[T]]]:
    """Run work in threads of its own while the test goes on; their ends are waited for."""
    with ThreadPoolExecutor(len(work), thread_name_prefix="beside") as pool:
        yield [pool.submit(each) for each in work]


def together(*work: Callable[[], T]) -> list[T]:
    """Run work side by side, all of it let go at once."""
    barrier = threading.Barrier(len(work))

    def start(each: Callable[[], T]) -> T:
        barrier.wait(10)
        return each()

    with ThreadPoolExecutor(len(work), thread_name_prefix="together") as pool:
        return list(pool.map(start, work))


def wait_until_blocked(engine: Engine, count: int = 1) -> None:
    """Wait until so many connections wait for a lock of another one."""
    query = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

    def blocked() -> int:
        with Session(engine) as session:
            return int(rows(session, query)[0].n)

    eventually(blocked, until=lambda n: n >= count, seconds=10)


# Carriers that are not there.


def carriers_of(transport: httpx.BaseTransport) -> Callable[[RouteSettings], Carrier]:
    """Open every route over one transport."""
    opened: dict[UUID, Carrier] = {}
    return lambda route: opened.setdefault(route.id, CARRIERS[route.carrier](route, transport=transport))


def simulated(*rules: object, at: datetime = NOON) -> SimulatorTransport:
    """Start a simulator without sockets, its clock at a time of our choosing."""
    transport = SimulatorTransport(now=at.timestamp())
    transport.use_rules(list(rules))
    return transport


def answering(status: int, json: object = None, headers: Mapping[str, str] | None = None) -> httpx.MockTransport:
    """Answer every request alike."""
    return httpx.MockTransport(lambda _: httpx.Response(status, json=json, headers=headers))


def ids_of(standings: Sequence[Standing]) -> list[AttemptId]:
    """Name the attempts."""
    return [s.attempt_id for s in standings]
