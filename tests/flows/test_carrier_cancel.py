"""What was taken back after it had left: the carrier is asked to drop it, and its answer is one report among others."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancel import cancel_event
from app.flows.carrier_cancel import ASKED_AT_MOST, CarrierOf, ask_to_cancel
from app.ground.db import rows
from policy.states import AttemptState
from tests.making import (
    Standing,
    attempt_of,
    carriers_of,
    clock,
    committing,
    hear,
    intent_of,
    make_attempt,
    make_house,
    make_prepared,
    make_queued,
    transitions_of,
)


class Carrier(httpx.BaseTransport):
    """A Twilio that answers one thing to every cancel, and counts."""

    def __init__(self, status: str | int) -> None:
        self.status = status
        self.asked: list[tuple[str, bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer as Twilio does."""
        self.asked.append((request.url.path.rpartition("/")[2], request.read()))
        if isinstance(self.status, int):
            return httpx.Response(self.status, json={"code": 30409, "message": "cannot be cancelled"})
        return httpx.Response(200, json={"sid": "SM1", "status": self.status, "error_code": None})

    @property
    def open(self) -> CarrierOf:
        """Open every route over it."""
        return carriers_of(self)


def cancelled(engine: Engine, state: AttemptState, *, remote_id: str | None = "SM1", carrier: str = "twilio") -> Standing:
    """Make an attempt that was cancelled after it had left."""
    with committing(engine) as session:
        now = clock(session)
        house = make_house(session, carrier=carrier, now=now)
        prepared = state is AttemptState.PREPARED
        standing = (
            make_prepared(session, house, now=now)
            if prepared
            else make_attempt(session, house, state, remote_id=remote_id, now=now)
        )
        cancel_event(session, tenant_id=house.tenant_id, event_id=standing.event_id, actor="ann", now=now)
    return standing


def asked_of(engine: Engine) -> list[Any]:
    with Session(engine) as session:
        return rows(session, "SELECT * FROM carrier_cancel ORDER BY attempt_id")


def be_due(engine: Engine) -> None:
    with committing(engine) as session:
        rows(session, "UPDATE carrier_cancel SET ask_at = clock_timestamp() WHERE ask_at IS NOT NULL")


def test_the_carrier_is_asked_once_and_its_answer_is_kept(fresh_database: Engine) -> None:
    standing, carrier = cancelled(fresh_database, AttemptState.SUBMITTED), Carrier("canceled")

    assert [ask_to_cancel(carrier_of=carrier.open) for _ in range(2)] == [1, 0]

    assert carrier.asked == [("SM1.json", b"Status=canceled")]
    (row,) = asked_of(fresh_database)
    with Session(fresh_database) as session:
        (observation,) = rows(session, "SELECT * FROM observation WHERE error_code = 'canceled'")
        assert (row.answer, row.ask_count, row.observation_id) == ("failed", 1, observation.id)
        assert transitions_of(session, standing)[-1] == ("handed_off", "failed", "cancelled")
        assert (intent_of(session, standing).reason, intent_of(session, standing).holds_key) == ("cancelled", True)


def test_a_text_that_arrives_all_the_same_is_delivered(fresh_database: Engine) -> None:
    """A carrier that says it dropped a text may have sent it: what the handset got outranks what was answered."""
    standing = cancelled(fresh_database, AttemptState.SUBMITTED)
    ask_to_cancel(carrier_of=Carrier("canceled").open)

    with committing(fresh_database) as session:
        hear(session, standing, AttemptState.DELIVERED, now=clock(session))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, intent_of(session, standing).state) == ("delivered", "delivered")


def test_a_carrier_that_has_sent_it_changes_nothing(fresh_database: Engine) -> None:
    standing, carrier = cancelled(fresh_database, AttemptState.SUBMITTED), Carrier("sent")

    ask_to_cancel(carrier_of=carrier.open)

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.next_check_at) == ("submitted", attempt.horizon_at)
    assert [(r.answer, r.ended_at is None) for r in asked_of(fresh_database)] == [("submitted", False)]


@pytest.mark.parametrize("status", [400, 503])
def test_a_carrier_that_does_not_answer_is_asked_a_few_times_and_no_more(fresh_database: Engine, status: int) -> None:
    standing, carrier = cancelled(fresh_database, AttemptState.SUBMITTED), Carrier(status)

    for _ in range(ASKED_AT_MOST + 2):
        be_due(fresh_database)
        ask_to_cancel(carrier_of=carrier.open)

    assert len(carrier.asked) == ASKED_AT_MOST
    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "submitted"


def test_what_has_no_id_yet_is_asked_about_when_the_answer_names_it(fresh_database: Engine) -> None:
    standing, carrier = cancelled(fresh_database, AttemptState.PREPARED), Carrier("canceled")
    ask_to_cancel(carrier_of=carrier.open)
    assert carrier.asked == []

    with committing(fresh_database) as session:
        hear(session, standing, AttemptState.SUBMITTED, remote_id="SM1", now=clock(session))
    be_due(fresh_database)
    ask_to_cancel(carrier_of=carrier.open)

    assert len(carrier.asked) == 1


def test_what_never_gets_an_id_is_given_up(fresh_database: Engine) -> None:
    cancelled(fresh_database, AttemptState.UNKNOWN, remote_id=None)
    with committing(fresh_database) as session:
        rows(session, "UPDATE carrier_cancel SET requested_at = requested_at - interval '15 minutes'")

    ask_to_cancel(carrier_of=Carrier("canceled").open)

    assert [(r.answer, r.ask_at) for r in asked_of(fresh_database)] == [("no_remote_id", None)]


def test_what_was_settled_meanwhile_is_not_asked_about(fresh_database: Engine) -> None:
    standing, carrier = cancelled(fresh_database, AttemptState.SUBMITTED), Carrier("canceled")
    with committing(fresh_database) as session:
        hear(session, standing, AttemptState.DELIVERED, now=clock(session))

    ask_to_cancel(carrier_of=carrier.open)

    assert (carrier.asked, [r.answer for r in asked_of(fresh_database)]) == ([], ["settled"])


def test_a_carrier_that_cannot_cancel_is_not_asked(fresh_database: Engine) -> None:
    cancelled(fresh_database, AttemptState.SUBMITTED, remote_id=None, carrier="kannel")

    assert asked_of(fresh_database) == []


def test_what_had_not_left_is_nothing_to_ask_about(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        standing = make_queued(session, make_house(session, now=now), now=now)
        cancel_event(session, tenant_id=standing.house.tenant_id, event_id=standing.event_id, actor="ann", now=now)

    assert asked_of(fresh_database) == []
