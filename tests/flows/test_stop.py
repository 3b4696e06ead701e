"""A STOP on the way: wherever it meets the text, whoever committed first wins, and the evidence says who that was.

Consents and preferences may count as of the acceptance; a STOP counts as of now, whatever the category's basis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.carriers.base import Call
from app.flows.dispatch import Page, _claim, dispatch
from app.flows.handoff import hand_off
from app.flows.inbound import Received, take_inbound
from app.ground.db import Tx, rows, transact
from app.ledger.audit import audit
from app.ledger.prepare import prepare
from policy.categories import Basis
from policy.replay import facts_of
from policy.words import Lane
from tests.making import (
    ANNA,
    H,
    Standing,
    attempts_of,
    beside,
    carriers_of,
    clock,
    committing,
    intent_of,
    make_house,
    make_queued,
    make_route,
    sample,
    simulated,
    wait_until_blocked,
)

BASES: Final = pytest.mark.parametrize("basis", Basis)
QUERY: Final = b"tok=t&from=12015550123&to=100&id=k-1&text=STOP"
OPTED_OUT: Final = ("suppressed", "opted_out")
RETRIED: Final = {
    "classes": ["transient"],
    "max_attempts": 3,
    "backoff": {"initial": "1s", "factor": 1, "max": "1s"},
    "window": "10m",
}
TRANSIENT: Final = {"match": {"to": ANNA}, "then": {"code": 30003, "accept": False}}


@dataclass(frozen=True, slots=True)
class Text:
    """One text for Anna on its way, and her STOP."""

    engine: Engine
    standing: Standing
    kannel_id: UUID
    """A route on which she can answer."""

    def stop(self) -> Received:
        """Let Anna write STOP, as a carrier hands it over."""
        return take_inbound(self.kannel_id, Call("GET", QUERY, {}, b""))

    def claim(self) -> Page:
        """Lease it."""
        (page,) = dispatch(Lane.URGENT)
        return page

    def hand_off(self, page: Page, *rules: object) -> int:
        """Take it as far as the carrier; say how many texts that has then."""
        with Session(self.engine) as session:
            carrier = simulated(*rules, at=clock(session))
        hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=carriers_of(carrier))
        return len(carrier.book.messages)

    def outcome(self) -> tuple[str, str]:
        """Read how the text stands."""
        with Session(self.engine) as session:
            intent = intent_of(session, self.standing)
            return intent.state, intent.reason

    def seen_last(self) -> set[str]:
        """Read which suppressions the last decision about it had seen."""
        query = "SELECT evidence FROM decision WHERE intent_id = %(id)s ORDER BY id DESC LIMIT 1"
        with Session(self.engine) as session:
            evidence = rows(session, query, id=self.standing.intent_id)[0].evidence
        return {each.id for each in facts_of(evidence).suppressions}

    def stopped_by(self) -> set[str]:
        """Read what was suppressed, having seen that it came from the text, and that the books are clean."""
        query = "SELECT s.id FROM suppression s JOIN inbound n ON n.id = s.cause_id AND n.status = 'acted'"
        with Session(self.engine) as session:
            assert audit(session, since=None, full=True, now=clock(session)) == []
            return {str(row.id) for row in rows(session, query)}


@pytest.fixture
def make_text(fresh_database: Engine) -> Any:
    """Make a text by a basis."""

    def make(basis: Basis) -> Text:
        with committing(fresh_database) as session:
            now = clock(session)
            policy = sample(basis=basis.value, retry=RETRIED)
            house = make_house(session, policy=policy, now=now)
            kannel = make_route(session, house.tenant_id, carrier="kannel", priority=200, now=now)
            return Text(fresh_database, make_queued(session, house, now=now), kannel)

    return make


@BASES
def test_a_stop_between_acceptance_and_dispatch_wins(make_text: Any, basis: Basis) -> None:
    text: Text = make_text(basis)

    text.stop()

    assert dispatch(Lane.URGENT) == []
    assert text.outcome() == OPTED_OUT
    assert text.seen_last() == text.stopped_by() != set()


@BASES
def test_a_stop_that_commits_while_the_text_is_being_leased_wins(make_text: Any, basis: Basis) -> None:
    """The decision was taken before it and the lease commits after it: the gate's mark is not the one that was seen."""
    text: Text = make_text(basis)

    def claim_and_be_overtaken(tx: Tx) -> Page:
        claimed = _claim(tx, lane=Lane.URGENT, route_id=text.standing.house.route_id, limit=10)
        text.stop()
        return claimed.pages[0]

    page = transact(claim_and_be_overtaken)
    texts = text.hand_off(page)

    assert texts == 0
    assert dispatch(Lane.URGENT) == []
    assert text.outcome() == OPTED_OUT
    assert text.seen_last() == text.stopped_by() != set()


@BASES
def test_a_stop_between_lease_and_prepare_wins(make_text: Any, basis: Basis) -> None:
    text: Text = make_text(basis)
    page = text.claim()

    text.stop()

    assert text.hand_off(page) == 0
    assert dispatch(Lane.URGENT) == []
    assert text.outcome() == OPTED_OUT
    assert text.seen_last() == text.stopped_by() != set()


@BASES
def test_a_stop_that_comes_while_the_text_is_being_prepared_was_second(make_text: Any, basis: Basis) -> None:
    """It waits for the gate, and then for nothing: what the carrier has cannot be taken back."""
    text: Text = make_text(basis)
    page = text.claim()
    with committing(text.engine) as session:
        prepared = prepare(session, page.attempt_ids, lease=page.lease, handoff_for=H, boottime=0.0, now=clock(session))
        with beside(text.stop) as (stopping,):
            wait_until_blocked(text.engine)
            assert not stopping.done()
            session.commit()

    assert [h.attempt_id for h in prepared.handoffs] == [text.standing.attempt_id]
    assert text.seen_last() == set()
    assert len(text.stopped_by()) == 1
    with Session(text.engine) as session:
        (attempt,) = attempts_of(session, text.standing.intent_id)
    assert attempt.state == "prepared"


@BASES
def test_after_a_stop_during_the_handoff_nothing_is_tried_again(make_text: Any, basis: Basis) -> None:
    text: Text = make_text(basis)
    page = text.claim()
    with Session(text.engine) as session:
        carrier = simulated(TRANSIENT, at=clock(session))
    opened = carriers_of(carrier)

    class Overtaken:
        """The same carrier; Anna writes STOP while it has the text."""

        def __init__(self, route: Any) -> None:
            self.carrier = opened(route)

        def send(self, *args: Any, **kwargs: Any) -> Any:
            answer = self.carrier.send(*args, **kwargs)
            text.stop()
            return answer

    hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=Overtaken)  # type: ignore[arg-type]  # sends only
    with committing(text.engine) as session:
        rows(session, "UPDATE outbox SET due_at = clock_timestamp()")

    assert dispatch(Lane.URGENT) == []
    assert text.outcome() == OPTED_OUT
    with Session(text.engine) as session:
        assert [a.state for a in attempts_of(session, text.standing.intent_id)] == ["failed", "suppressed"]
    assert text.seen_last() == text.stopped_by() != set()
