"""Cancel: what is still ours stops, what was handed off is told of, and a race with a handoff has one winner."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancel import Cancelled, NoSuchEvent, cancel_event
from app.ground.db import rows
from policy.states import AttemptState, PublicState
from tests.making import (
    NOON,
    Standing,
    attempt_of,
    beside,
    committing,
    count_of,
    intent_of,
    make_attempt,
    make_event,
    make_house,
    make_leased,
    make_queued,
    outbox_of,
    prepare_all,
    wait_until_blocked,
)

LATER = NOON + timedelta(seconds=5)


def cancel(session: Session, standing: Standing) -> Cancelled:
    return cancel_event(session, tenant_id=standing.house.tenant_id, event_id=standing.event_id, actor="ann", now=LATER)


def test_what_is_still_ours_is_cancelled_with_the_operators_name(session: Session) -> None:
    standing = make_queued(session, make_house(session))

    cancelled = cancel(session, standing)

    (action,) = rows(session, "SELECT id, actor, verb FROM operator_action")
    cause = rows(session, "SELECT cause_id FROM transition WHERE state = 'cancelled'")[0].cause_id
    assert cancelled.handed_off == ()
    assert cancelled.event.intents[0].state == PublicState.CANCELLED
    assert (action.actor, action.verb, cause) == ("ann", "cancel", action.id)


@pytest.mark.parametrize("state", [AttemptState.PREPARED, AttemptState.SUBMITTED, AttemptState.UNKNOWN])
def test_what_was_handed_off_is_told_of_and_not_claimed_to_be_recalled(session: Session, state: AttemptState) -> None:
    standing = make_attempt(session, make_house(session), state)

    cancelled = cancel(session, standing)

    assert [(i.intent_id, i.close_request) for i in cancelled.handed_off] == [(standing.intent_id, "cancelled")]
    assert attempt_of(session, standing).state == state


@pytest.mark.parametrize("state", [AttemptState.QUEUED, AttemptState.SUBMITTED])
def test_cancelling_twice_answers_the_same_and_is_one_action(session: Session, state: AttemptState) -> None:
    house = make_house(session)
    standing = make_queued(session, house) if state is AttemptState.QUEUED else make_attempt(session, house, state)

    assert cancel(session, standing) == cancel(session, standing)
    assert count_of(session, "operator_action") == 1


def test_another_tenants_event_is_not_there(session: Session) -> None:
    standing = make_queued(session, make_house(session))

    with pytest.raises(NoSuchEvent):
        cancel_event(session, tenant_id=uuid4(), event_id=standing.event_id, actor="ann", now=LATER)

    assert outbox_of(session, standing) is not None


def test_cancelling_an_event_that_only_joined_leaves_the_intent_it_joined(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house)
    joined = make_event(session, house, key="k-2")

    cancelled = cancel_event(session, tenant_id=house.tenant_id, event_id=joined.event_id, actor="ann", now=LATER)

    assert (cancelled.handed_off, cancelled.event.intents[0].joined) == ((), True)
    assert intent_of(session, standing).closed_at is None


def test_a_joined_event_that_was_cancelled_is_not_promoted_when_the_first_one_closes(session: Session) -> None:
    """Nobody is contacted about what the application took back."""
    house = make_house(session)
    standing = make_queued(session, house)
    older, newest = (make_event(session, house, key=key, now=now) for key, now in (("k-2", NOON), ("k-3", LATER)))
    cancel_event(session, tenant_id=house.tenant_id, event_id=newest.event_id, actor="ann", now=LATER)

    cancel(session, standing)

    found = rows(session, "SELECT event_id FROM intent WHERE state = 'queued'")
    assert [row.event_id for row in found] == [older.event_id]


def test_a_cancel_that_is_first_leaves_nothing_to_prepare(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        standing = make_leased(session, make_house(session))

    def prepare_it() -> int:
        with committing(fresh_database) as session:
            return len(prepare_all(session, standing, now=LATER).handoffs)

    with Session(fresh_database) as cancelling, cancelling.begin():
        cancel(cancelling, standing)
        with beside(prepare_it) as (preparing,):
            wait_until_blocked(fresh_database)
            cancelling.commit()
            prepared = preparing.result(10)

    with Session(fresh_database) as session:
        assert (prepared, attempt_of(session, standing).state) == (0, "cancelled")


def test_a_cancel_that_comes_second_says_that_it_was_handed_off(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        standing = make_leased(session, make_house(session))

    def cancel_it() -> Cancelled:
        with committing(fresh_database) as session:
            return cancel(session, standing)

    with Session(fresh_database) as preparing, preparing.begin():
        assert len(prepare_all(preparing, standing, now=LATER).handoffs) == 1
        with beside(cancel_it) as (cancelling,):
            wait_until_blocked(fresh_database)
            preparing.commit()
            cancelled = cancelling.result(10)

    with Session(fresh_database) as session:
        assert [i.intent_id for i in cancelled.handed_off] == [standing.intent_id]
        assert (attempt_of(session, standing).state, intent_of(session, standing).closed_at) == ("prepared", None)
