"""The real verbs on real Postgres, one transaction per history, told by the model's names; then compared with the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancel import cancel_event
from app.desk.cancellation import begin_cancellation, occasion_of
from app.desk.pause import Scope, resume
from app.desk.settle import Answer as Says
from app.desk.settle import settle
from app.flows.dispatch import DUE_ROUTES, _claim, _room
from app.flows.poll import Answer, _reschedule
from app.flows.poll import _claim as _claim_polls
from app.flows.reconcile.deadlines import _doubt
from app.flows.reconcile.expiry import _expire
from app.flows.reconcile.horizons import REACHED, _stop_asking
from app.flows.reconcile.unheard import _answer
from app.ground.db import Tx, rows, run_together
from app.ground.ids import AttemptId, Lease, new_id
from app.ledger import cancellation
from app.ledger.audit import Breach, audit
from app.ledger.cancellation import cut, get
from app.ledger.notfound import count_not_found
from app.ledger.observe import Told, observe
from app.ledger.prepare import prepare
from app.ledger.routes import read_routes
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.states import AttemptState
from policy.words import Channel, ErrorClass, Lane, Reason, Settlement, Source
from tests.laws.history import RULES, Step, play
from tests.laws.model import CAP, HORIZON, NEVER, WAITED, Model, Name, Report, Rules
from tests.making import ANNA, KANNEL, NOON, TWILIO, H, House, accept_all, ask, committing, make_house, make_route, sample

Houses = Mapping[Rules, House]

LANE: Final = Lane.URGENT
LEASE_FOR: Final = timedelta(seconds=60)

BOOKS: Final = (
    """SELECT i.id, i.event_id, i.state, i.reason, i.closed_at IS NOT NULL AS closed, i.close_requested_at IS NOT NULL AS asked,
              i.holds_key FROM intent i WHERE i.tenant_id = %(tenant)s ORDER BY i.id""",
    """SELECT a.id, a.intent_id, a.ordinal, a.state, a.taken, a.error_class, a.next_check_at, a.not_found_count, a.check_count,
              a.route_id, a.allowed_by, a.unheard_at
       FROM attempt a WHERE a.tenant_id = %(tenant)s ORDER BY a.id""",
    """SELECT o.attempt_id, nullif(o.due_at, 'infinity') AS due_at, o.lease, o.leased_until, o.lost_lease_count
       FROM outbox o WHERE o.tenant_id = %(tenant)s""",
    "SELECT r.attempt_id, r.cause FROM review r WHERE r.tenant_id = %(tenant)s AND r.settled_at IS NULL",
    "SELECT g.slots, g.suppressed_at FROM gate g WHERE g.tenant_id = %(tenant)s",
    "SELECT e.id FROM event e WHERE e.tenant_id = %(tenant)s ORDER BY e.id",
)
OPEN_REVIEW: Final = "SELECT id FROM review WHERE attempt_id = %(attempt)s AND settled_at IS NULL"
ROUTES: Final = "SELECT id, name FROM route WHERE tenant_id = %(tenant)s ORDER BY priority, id"


def at(seconds: int) -> datetime:
    """Give the model's second as an instant."""
    return NOON + timedelta(seconds=seconds)


def second(instant: datetime | None) -> int | None:
    """Give an instant as the model's second."""
    return None if instant is None else round((instant - NOON).total_seconds())


def build_houses(engine: Engine) -> Houses:
    """Commit a house per set of rules."""
    with committing(engine) as session:
        return {rules: _build(session, rules) for rules in RULES}


def _build(session: Session, rules: Rules) -> House:
    base = TWILIO if rules.asks else KANNEL
    route: dict[str, Any] = {
        "carrier": "twilio" if rules.asks else "kannel",
        "settings": {**base, "horizon_seconds": str(HORIZON)},
    }
    house = make_house(session, policy=policy_of(rules), **route)
    if rules.fails_over:
        make_route(session, house.tenant_id, priority=200, **route)
    return house


def policy_of(rules: Rules) -> dict[str, Any]:
    """Write the policy that says what the model's rules do."""
    raw = sample()
    ours = raw["categories"]["transactional"]
    ours["ambiguity"] = {"not_found": rules.not_found, "horizon": rules.horizon}
    if rules.waited:
        ours["ambiguity"]["waited"] = {"after": f"{WAITED}s", "then": rules.waited}
    ours["retry"] |= {"classes": list(rules.classes), "route": "next" if rules.fails_over else "same"}
    if rules.capped:
        ours["caps"] = [{"limit": CAP[0], "window": f"{CAP[1]}s", "per": "category"}]
    return raw


@contextmanager
def rolled_back(engine: Engine) -> Iterator[Session]:
    """Give a session whose work is never committed; jitter is none, so that times can be compared."""
    with engine.connect() as connection, patch("random.random", return_value=0.0):
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as session:
            yield session
        outer.rollback()


class Real:
    """The real books of one house."""

    def __init__(self, session: Session, house: House) -> None:
        self.session = session
        self.house = house
        self.now = NOON
        self.events: list[UUID] = []
        self.ids: dict[Name, AttemptId] = {}
        self.names: dict[UUID, Name] = {}
        self.leases: dict[int, Lease] = {}
        self.said: list[str] = []
        self.prepared: dict[Name, int] = {}
        self.touched = True
        """Whether the books may have changed since they were last compared."""
        self.reports: dict[int, UUID] = {}
        self.claimed: dict[Name, Any] = {}
        self.routes = rows(session, ROUTES, tenant=house.tenant_id)

    @property
    def tx(self) -> Tx:
        """Give the transaction that a verb runs in."""
        return Tx(self.session, self.now, 0.0)

    def do(self, verb: str, *args: object) -> object:
        """Do one transaction."""
        self.touched = self.touched or verb != "wait"
        return getattr(self, f"_{verb}")(*args)

    def crash(self, verb: str, *args: object) -> None:
        """Do one transaction and roll it back: nothing of it may be left, in the books or in memory."""
        self.touched = True
        nested = self.session.begin_nested()
        getattr(self, f"_{verb}")(*_padded(verb, args))
        nested.rollback()
        self.events = self.events[: len(rows(self.session, BOOKS[5], tenant=self.house.tenant_id))]
        self.said.clear()

    def _wait(self, now: int) -> None:
        self.now = at(now)

    def _accept(self, key: int, lives: int) -> None:
        raw = ask(subject=f"c-{key}", key=f"k-{len(self.events)}", expires_at=(self.now + timedelta(seconds=lives)).isoformat())
        view = accept_all(self.session, self.house, raw, now=self.now)[0]
        self.events.append(getattr(view, "event_id"))  # noqa: B009 - it was not refused

    def _cancel(self, number: int) -> None:
        cancel_event(self.session, tenant_id=self.house.tenant_id, event_id=self.events[number], actor="ann", now=self.now)

    def _fill(self, key: int) -> None:
        tenant_id, asked = self.house.tenant_id, occasion_of("class.opening", f"c-{key}")
        begun = begin_cancellation(self.session, tenant_id=tenant_id, asked=asked, reason="", actor="ann", key=None, now=self.now)
        cancellation.cut(
            self.session, cancellation.get(self.session, tenant_id=tenant_id, cancellation_id=begun.id), now=self.now
        )

    def _call_off(self, key: int) -> None:
        tenant, asked = self.house.tenant_id, occasion_of("class.opening", f"c-{key}")
        begun = begin_cancellation(
            self.session, tenant_id=tenant, asked=asked, reason="full", actor="ann", key=None, now=self.now
        )
        cut(self.session, get(self.session, tenant_id=tenant, cancellation_id=begun.id), now=self.now)

    def _dispatch(self, expected: Sequence[tuple[int, tuple[Name, ...]]] | None) -> None:
        found = rows(self.session, DUE_ROUTES, lane=LANE, now=self.now, lease_end=self.now + LEASE_FOR)
        due = {route.id: route for route in found}
        pages = [
            page
            for ours in self.routes
            if (route := due.get(ours.id))
            for page in _claim(
                self.tx, lane=LANE, route_id=route.id, limit=_room(route.rate_per_second, route.leased_count)
            ).pages
        ]
        if expected is None:
            return
        self._learn()
        leased = [tuple(self.names[i] for i in page.attempt_ids) for page in pages]
        if leased != [names for _, names in expected]:
            self.said.append(f"leased {leased}, the model {expected}")
        for page, (number, _) in zip(pages, expected, strict=False):
            self.leases[number] = page.lease

    def _prepare(self, lease: int, names: Sequence[Name], expected: Sequence[Name] | None) -> None:
        ids = [self.ids[n] for n in names]
        prepared = prepare(self.session, ids, lease=self.leases[lease], handoff_for=H, boottime=0.0, now=self.now)
        if expected is None:
            return
        admitted = sorted(self.names[h.attempt_id] for h in prepared.handoffs)
        if admitted != sorted(expected):
            self.said.append(f"prepared {admitted}, the model {expected}")
        for name in admitted:
            self.prepared[name] = self.prepared.get(name, 0) + 1
            if self.prepared[name] > 1:
                self.said.append(f"{name} was handed off twice")

    def _observe(self, told: Sequence[tuple[Name, Report]]) -> None:
        observe(self.session, [self._told(n, r) for n, r in told], now=self.now)

    def _told(self, name: Name, r: Report) -> Told:
        return Told(
            self.ids[name],
            AttemptState(r.state),
            Source(r.source),
            id=self._number(r),
            error_class=ErrorClass(r.error) if r.error else None,
            reason=Reason(r.reason) if r.reason else None,
            remote_id=f"SM-{self.ids[name]}" if r.remote else None,
            retry_after_seconds=r.retry_after,
        )

    def _number(self, report: Report) -> UUID:
        """Give a report its one id, however often it is offered."""
        return self.reports.setdefault(report.number, new_id())

    def _claim_polls(self, expected: Sequence[Name]) -> None:
        claimed = _claim_polls(self.tx, 100)
        self.claimed = {self.names[a.id]: a for a in claimed}
        if sorted(self.claimed) != sorted(expected):
            self.said.append(f"polls {sorted(self.claimed)}, the model {expected}")

    def _reschedule(self, claims: Sequence[tuple[Name, int]]) -> None:
        answers = [Answer(self.claimed[n]) for n, _ in claims if n in self.claimed]
        _reschedule(self.tx, answers, read_routes(self.session, {a.attempt.route_id for a in answers}))

    def _count_missing(self, names: Sequence[Name]) -> None:
        count_not_found(self.session, [self.ids[n] for n in names], now=self.now)

    def _doubt(self, told: Sequence[tuple[Name, Report]]) -> None:
        found = _doubt(self.tx)
        if found != len(told):
            self.said.append(f"{found} in doubt, the model {told}")

    def _stop_asking(self, expected: Sequence[Name]) -> None:
        reached = rows(self.session, REACHED, now=self.now, limit=200)
        doubtful = [r.id for r in reached if r.state == AttemptState.UNKNOWN]
        if sorted(self.names[i] for i in doubtful) != sorted(expected):
            self.said.append(f"reached {[self.names[i] for i in doubtful]}, the model {expected}")
        _stop_asking(self.tx, doubtful)

    def _expire(self) -> None:
        _expire(self.tx)

    def _settle(self, name: Name, answer: str, report: Report) -> None:
        del report  # the verb makes its own
        found = rows(self.session, OPEN_REVIEW, attempt=self.ids[name])
        says = Says(Settlement(answer), reason="looked at it", actor="ann")
        settle(self.session, tenant_id=self.house.tenant_id, review_id=found[0].id, answer=says, now=self.now)

    def _silence(self) -> None:
        _answer(self.tx)

    def _stop(self) -> None:
        digest = address_hash(Channel.SMS, ANNA).digest
        suppress(
            self.session,
            tenant_id=self.house.tenant_id,
            channel=Channel.SMS,
            address_hash=digest,
            source="api",
            cause_id=None,
            now=self.now,
        )

    def _resume(self) -> None:
        for route in self.routes:
            scope = Scope(route=route.name)
            resume(self.session, tenant_id=self.house.tenant_id, scope=scope, actor="ann", reason="", now=self.now)

    # What the books say, in the model's words.

    def _learn(self) -> list[Any]:
        tenant = {"tenant": self.house.tenant_id}
        found = run_together(self.session, [(statement, tenant) for statement in BOOKS[:5]])
        numbers = {event_id: n for n, event_id in enumerate(self.events)}
        owners = {i.id: numbers[i.event_id] for i in found[0]}
        for a in found[1]:
            name = (owners[a.intent_id], a.ordinal)
            self.ids[name], self.names[a.id] = AttemptId(a.id), name
        return [numbers, *found]

    def differences(self, model: Model) -> list[str]:
        """Say where the books stand elsewhere than the model."""
        if not self.touched:
            return []
        self.touched = False
        said, self.said = self.said, []
        ours, theirs = self._standing(), standing(model)
        said += [
            f"{what}: {ours.get(what)}, the model {theirs.get(what)}"
            for what in {**ours, **theirs}
            if ours.get(what) != theirs.get(what)
        ]
        return said

    def _standing(self) -> dict[str, object]:
        numbers, intents, attempts, outbox, reviews, gates = self._learn()
        found: dict[str, object] = {
            f"intent {numbers[i.event_id]}": (i.state, i.reason, i.closed, i.asked, i.holds_key) for i in intents
        }
        for a in attempts:
            check = second(a.next_check_at)
            found[f"attempt {self.names[a.id]}"] = (a.state, a.taken, a.error_class, check, a.not_found_count, a.check_count)
            route = next(n for n, route in enumerate(self.routes) if route.id == a.route_id)
            found[f"made {self.names[a.id]}"] = (route, a.allowed_by, second(a.unheard_at))
        for o in outbox:
            found[f"outbox {self.names[o.attempt_id]}"] = (second(o.due_at), second(o.leased_until), o.lost_lease_count)
        for r in reviews:
            found[f"review {self.names[r.attempt_id]}"] = r.cause
        for g in gates:
            slot = g.slots.get("transactional")
            found["slot"] = (
                None if slot is None else (second(datetime.fromisoformat(slot["until"])), self.names[UUID(slot["attempt_id"])])
            )
            found["mark"] = second(g.suppressed_at)
            if told := g.slots.get("contacted"):
                found["contacted"] = sorted(second(datetime.fromisoformat(each["at"])) or 0 for each in told)
        return found

    def audit(self) -> list[Breach]:
        """Audit everything that this transaction sees."""
        return audit(self.session, since=None, full=True, now=self.now)


def run_history(engine: Engine, houses: Houses, rules: Rules, steps: Sequence[Step]) -> list[str]:
    """Play one history beside the model, then audit what it left; say what did not hold."""
    with rolled_back(engine) as session:
        real = Real(session, houses[rules])
        try:
            return play(rules, steps, real) or [f"audit: {b.invariant} {b.code} {list(b.rows)}" for b in real.audit()]
        except Exception as error:  # noqa: BLE001 - whatever a verb raises is what is looked for, and shrunk
            return [f"raised {type(error).__name__}: {error}"]


def standing(model: Model) -> dict[str, object]:
    """Say where the model stands, in the words of `Real`."""
    found: dict[str, object] = {
        f"intent {i.event.number}": (i.state, i.reason, i.closed, i.asked, i.holds) for i in model.intents
    }
    for a in model.attempts:
        found[f"attempt {a.name}"] = (a.state, a.taken, a.error, a.check, a.missing, a.checks)
        found[f"made {a.name}"] = (a.route, a.allowed, a.unheard)
    for a, row in model.rows.items():
        until = row.until if row.lease is not None else None
        found[f"outbox {a.name}"] = (None if row.due == NEVER else row.due, until, row.lost)
    for a, cause in model.reviews.items():
        found[f"review {a.name}"] = cause
    found["slot"] = None if model.slot is None else (model.slot[1], model.slot[2].name)
    found["mark"] = model.mark
    if model.contacted:
        found["contacted"] = sorted(a.prepared_at or 0 for _, a in model.contacted)
    return found


def _padded(verb: str, args: Sequence[object]) -> Sequence[object]:
    """Give a step that is rolled back no expectation: it is not compared."""
    return [*args, None] if verb in {"dispatch", "prepare"} else args
