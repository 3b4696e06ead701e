"""Everybody at once on the same few people: pages that overlap, given to the verbs in opposite orders, round after round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final
from uuid import UUID

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancel import cancel_event
from app.flows.dispatch import Page, dispatch
from app.flows.handoff import hand_off
from app.flows.keep import observe_until_kept
from app.ground.db import Tx, rows, transact
from app.ground.ids import AttemptId
from app.ledger.observe import Told
from app.people.suppress import suppress
from policy.states import AttemptState
from policy.words import ErrorClass, Lane, Source
from simulator.transport import SimulatorTransport
from tests.making import House, accept_all, ask, carriers_of, clock, committing, make_house, sample, simulated, together

PEOPLE: Final = 6
EVENTS: Final = 12
"""Accepted in each round: each person is in it twice, so that pages share gates."""

GATES: Final = "SELECT DISTINCT gate_hash FROM intent WHERE recipient_ref = ANY(%(refs)s::text[])"
HANDED_OFF: Final = "SELECT id FROM attempt WHERE state IN ('submitted', 'unknown') ORDER BY id"
WAITING: Final = "SELECT event_id FROM outbox ORDER BY event_id"
DUE: Final = "SELECT 1 FROM outbox LIMIT 1"
DEADLOCKS: Final = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
CLOSED: Final = """
SELECT CASE WHEN i.closed_at IS NOT NULL THEN i.reason END AS reason,
       EXISTS (SELECT FROM attempt a WHERE a.intent_id = i.id AND a.prepared_at IS NOT NULL) AS has_left
FROM intent i
"""
WORDS: Final = (
    (AttemptState.SUBMITTED, None),
    (AttemptState.DELIVERED, None),
    (AttemptState.FAILED, ErrorClass.PERMANENT_RECIPIENT),
)


@dataclass(frozen=True, slots=True)
class End:
    """How an intent closed; what is open has no reason."""

    reason: str | None
    has_left: bool
    """Whether an attempt of it was handed off."""


@dataclass
class Melee:
    """A tenant, its carrier, and a seed."""

    engine: Engine
    seed: int
    house: House = field(init=False)
    carrier: SimulatorTransport = field(init=False)
    chance: Random = field(init=False)
    people: int = 0

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)  # noqa: S311 - it guards nothing
        with committing(self.engine) as session:
            now = clock(session)
            self.house = make_house(session, policy=sample(cooldown="0s"), rate=10_000, now=now)
        self.carrier = simulated(at=now)

    def round(self) -> None:
        """Accept some events, and let everybody loose on them and on those of the rounds before."""
        wishes = [wish for page in self._wishes() for wish in page]
        self.chance.shuffle(wishes)
        self._accept(wishes)
        pages = dispatch(Lane.URGENT)
        said = self._said()
        together(
            *(partial(self._hand_off, pages, backwards=backwards) for backwards in (False, True)),
            *(self._dispatch_and_hand_off for _ in range(2)),
            partial(observe_until_kept, said),
            partial(observe_until_kept, said[::-1]),
            partial(self._cancel, self._shuffled(WAITING)),
            partial(self._cancel, self._shuffled(WAITING)),
            partial(self._stop, [wish["recipient"]["ref"] for wish in wishes[:2]]),
        )

    def finish(self) -> None:
        """Work on alone until nothing is due, then let everything that left arrive."""
        while self._ask(DUE):
            self._dispatch_and_hand_off()
        left = [AttemptId(row) for row in self._ask(HANDED_OFF)]
        observe_until_kept([Told(i, AttemptState.DELIVERED, Source.RECEIPT) for i in left])

    def texts(self) -> dict[str, int]:
        """Count what the carrier took, by the key of its attempt."""
        keys = [message.submission.key or "" for message in self.carrier.book.messages.values()]
        return {key: keys.count(key) for key in keys}

    def opt_out(self) -> None:
        """Let everybody be texted twice, and the carrier say in two pages that they all opted out."""
        there, back = self._wishes()
        for wish in (*there, *back[::-1]):
            self._accept([wish])
        self._dispatch_and_hand_off()
        left = [AttemptId(i) for i in self._ask(HANDED_OFF)]  # as they were accepted
        said = [Told(i, AttemptState.FAILED, Source.RECEIPT, error_class=ErrorClass.OPTED_OUT) for i in left]
        together(*(partial(observe_until_kept, page) for page in (said[:PEOPLE], said[PEOPLE:])))

    def ends(self) -> Counter[End]:
        """Count how intents closed."""
        with Session(self.engine) as session:
            return Counter(End(row.reason, has_left=row.has_left) for row in rows(session, CLOSED))

    def deadlocks(self) -> int:
        """Count the deadlocks of this database, since ever."""
        with Session(self.engine) as session:
            return int(rows(session, DEADLOCKS)[0].deadlocks)

    def _wishes(self) -> list[list[dict[str, Any]]]:
        """Write two events each for some people who are new here."""
        first, self.people = self.people, self.people + PEOPLE
        return [
            [ask(ref=f"m-{n}", sms=f"+12015550{100 + n}", subject=f"c-{n}-{time}") for n in range(first, self.people)]
            for time in range(EVENTS // PEOPLE)
        ]

    def _accept(self, wishes: Sequence[dict[str, Any]]) -> None:
        with committing(self.engine) as session:
            accept_all(session, self.house, *wishes, now=clock(session))

    def _said(self) -> list[Told]:
        """Say something about half of what has left, some of it twice over."""
        left = [AttemptId(i) for i in self._shuffled(HANDED_OFF)]
        words = [(i, *self.chance.choice(WORDS)) for i in left[: len(left) // 2] for _ in range(2)]
        return [Told(i, state, Source.RECEIPT, error_class=error_class) for i, state, error_class in words]

    def _hand_off(self, pages: Sequence[Page], *, backwards: bool = False) -> None:
        """Take pages as a message that is delivered twice brings them."""
        step = -1 if backwards else 1
        for page in pages[::step]:
            ids = page.attempt_ids[::step]
            hand_off(ids, route_id=page.route_id, lease=page.lease, carrier_of=carriers_of(self.carrier))

    def _dispatch_and_hand_off(self) -> None:
        self._hand_off(dispatch(Lane.URGENT))

    def _cancel(self, events: Sequence[UUID]) -> None:
        for event_id in events[: len(events) // 3]:
            transact(partial(_cancel_one, house=self.house, event_id=event_id))

    def _stop(self, refs: Sequence[str]) -> None:
        for gate in self._ask(GATES, refs=list(refs)):
            transact(partial(_stop_one, house=self.house, gate=bytes(gate)))

    def _shuffled(self, statement: str) -> list[UUID]:
        found = self._ask(statement)
        self.chance.shuffle(found)
        return found

    def _ask(self, statement: str, **params: object) -> list[Any]:
        with Session(self.engine) as session:
            return [row[0] for row in rows(session, statement, **params)]


def _cancel_one(tx: Tx, *, house: House, event_id: UUID) -> None:
    cancel_event(tx.session, tenant_id=house.tenant_id, event_id=event_id, actor="test", now=tx.now)


def _stop_one(tx: Tx, *, house: House, gate: bytes) -> None:
    suppress(
        tx.session, tenant_id=house.tenant_id, channel="sms", address_hash=gate, source="operator", cause_id=None, now=tx.now
    )
