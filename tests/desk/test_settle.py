"""Settling reviews: each answer is somebody's act and is heard like any report; of two operators one settles."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.settle import (
    AlreadySettled,
    Answer,
    CannotSettle,
    CountChanged,
    Group,
    NoSuchReview,
    Settled,
    settle,
    settle_group,
)
from app.flows.reconcile.horizons import _stop_asking
from app.ground.db import Tx, rows
from app.ledger.audit import audit
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.review import open_reviews, park
from policy.settle import WhyNot
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Settlement
from tests.making import (
    BEN,
    NOON,
    House,
    Standing,
    attempt_of,
    attempts_of,
    claim,
    committing,
    count_of,
    hear,
    intent_of,
    make_attempt,
    make_event,
    make_house,
    make_queued,
    outbox_of,
    prepared_of,
    retry_of,
    reviews_of,
    sample,
    slots_of,
    together,
    transitions_of,
)

DELIVERED, FAILED, RESEND, LEAVE = Settlement
PAST_HORIZON = NOON + timedelta(hours=25)
LATER = PAST_HORIZON + timedelta(minutes=1)


def in_doubt(session: Session, house: House, **changes: Any) -> Standing:
    """Leave one event in doubt until a person is asked."""
    standing = make_attempt(session, house, AttemptState.UNKNOWN, **changes)
    _stop_asking(Tx(session, PAST_HORIZON, 0.0), [standing.attempt_id])
    assert reviews_of(session, standing) == ["horizon"]
    return standing


def parked(session: Session, house: House, **changes: Any) -> Standing:
    """Park one event's row."""
    standing = make_queued(session, house, **changes)
    park(session, lock_books(session, [standing.intent_id]), {standing.attempt_id: Reason.LOST_LEASES}, now=NOON)
    return standing


@pytest.fixture
def house(session: Session) -> House:
    return make_house(session, policy=asking())


def asking() -> dict[str, Any]:
    return sample(ambiguity={"not_found": "review", "horizon": "review"}, max_age="48h")


def review_of(session: Session, standing: Standing) -> UUID:
    """Name an intent's newest review."""
    found: UUID = rows(session, "SELECT id FROM review WHERE intent_id = %(id)s ORDER BY id", id=standing.intent_id)[-1].id
    return found


def answer(settlement: Settlement, *, actor: str = "ann") -> Answer:
    return Answer(settlement, "asked the carrier", actor)


def settled(session: Session, standing: Standing, settlement: Settlement, *, actor: str = "ann") -> None:
    review_id = review_of(session, standing)
    settle(session, tenant_id=standing.house.tenant_id, review_id=review_id, answer=answer(settlement, actor=actor), now=LATER)


def breaches_of(session: Session) -> list[str]:
    return [breach.code for breach in audit(session, since=None, full=True, now=LATER)]


@pytest.mark.parametrize(("settlement", "reason"), [(DELIVERED, "delivered"), (FAILED, "settled")])
def test_an_answer_is_heard_like_any_report_and_bears_a_name(
    session: Session, house: House, settlement: Settlement, reason: str
) -> None:
    standing = in_doubt(session, house)

    settled(session, standing, settlement)

    (action,) = rows(session, "SELECT * FROM operator_action")
    review = rows(session, "SELECT * FROM review")[0]
    heard = rows(session, "SELECT * FROM observation WHERE source = 'operator'")[0]
    intent = intent_of(session, standing)
    assert (attempt_of(session, standing).state, intent.state, intent.reason) == (settlement, settlement, reason)
    assert transitions_of(session, standing)[-1] == ("unknown", settlement, reason)
    assert (action.actor, action.verb, action.reason, action.subject["as"]) == ("ann", "settle", "asked the carrier", settlement)
    assert action.subject["observation_id"] == str(heard.id)
    assert (review.settled_as, review.settled_by, review.settled_action_id) == (settlement, "ann", action.id)
    assert breaches_of(session) == []


def test_what_is_heard_after_an_answer_still_counts(session: Session, house: House) -> None:
    standing = in_doubt(session, house)
    settled(session, standing, FAILED)

    hear(session, standing, AttemptState.DELIVERED, now=LATER)

    assert (attempt_of(session, standing).state, intent_of(session, standing).state) == ("delivered", "delivered")


def test_resend_makes_another_attempt_in_a_persons_name(session: Session, house: House) -> None:
    """The named person that invariant 7 asks for: the audit accepts this attempt, and no other answer's."""
    standing = in_doubt(session, house)

    settled(session, standing, RESEND)

    retry = retry_of(session, standing)
    last = rows(session, "SELECT * FROM transition ORDER BY id")[-1]
    action = rows(session, "SELECT id FROM operator_action")[0]
    assert (outbox_of(session, standing).due_at, last.state, last.cause, last.cause_id) == (
        LATER,
        "deferred",
        "operator",
        action.id,
    )
    assert attempt_of(session, standing).state == "unknown"
    assert breaches_of(session) == []
    assert prepared_of(session, retry, now=LATER).handoff is not None
    session.connection().exec_driver_sql("SET LOCAL daybook.retention = 'on'")
    rows(session, 'UPDATE operator_action SET subject = subject || \'{"as": "leave"}\'')
    assert breaches_of(session) == ["after_unknown"]


def test_leave_closes_the_intent_and_the_attempt_stays_in_doubt(session: Session, house: House) -> None:
    standing = in_doubt(session, house)

    settled(session, standing, LEAVE)

    intent = intent_of(session, standing)
    assert (attempt_of(session, standing).state, intent.state, intent.reason) == ("unknown", "unknown", "horizon")
    assert (intent.closed_at, intent.holds_key) == (LATER, True)
    assert breaches_of(session) == []


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda s, st: rows(s, "UPDATE intent SET expires_at = %(now)s WHERE id = %(id)s", now=LATER, id=st.intent_id), "ended"),
        (
            lambda s, st: cancel_intents(s, lock_books(s, [st.intent_id]), [st.intent_id], cause_id=None, now=PAST_HORIZON),
            "closing",
        ),
    ],
)
def test_resend_is_refused_where_no_attempt_may_follow(
    session: Session, house: House, prepare: Callable[[Session, Standing], object], why: str
) -> None:
    standing = in_doubt(session, house)
    prepare(session, standing)

    with pytest.raises(CannotSettle) as refused:
        settled(session, standing, RESEND)

    assert refused.value.why == why
    assert (reviews_of(session, standing), len(attempts_of(session, standing.intent_id))) == (["horizon"], 1)
    assert count_of(session, "operator_action") == 0


def test_a_parked_row_is_let_go_and_due_at_once(session: Session, house: House) -> None:
    standing = parked(session, house)

    settled(session, standing, RESEND)

    row = outbox_of(session, standing)
    assert (row.due_at, row.reason, row.lost_lease_count) == (LATER, None, 0)
    assert transitions_of(session, standing)[-2:] == [("queued", "deferred", "lost_leases"), ("deferred", "queued", None)]
    assert reviews_of(session, standing) == []
    assert breaches_of(session) == []
    assert [standing.attempt_id in page.attempt_ids for page in claim(session, house, now=LATER)] == [True]


def test_a_parked_row_that_is_given_up_frees_its_key_for_what_had_joined(session: Session, house: House) -> None:
    standing = parked(session, house)
    joined = make_event(session, house, key="k-2")

    settled(session, standing, FAILED)

    intent = intent_of(session, standing)
    assert (attempt_of(session, standing).state, intent.reason, intent.holds_key) == ("cancelled", "cancelled", False)
    assert rows(session, "SELECT event_id FROM intent WHERE closed_at IS NULL")[0].event_id == joined.event_id
    assert outbox_of(session, standing) is None
    assert breaches_of(session) == []


def test_a_second_handoff_can_only_be_noted(session: Session, house: House) -> None:
    standing = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.TRANSIENT)
    retry = prepared_of(session, retry_of(session, standing), now=NOON + timedelta(minutes=2))
    hear(session, retry, AttemptState.SUBMITTED, remote_id="SM2", now=NOON + timedelta(minutes=2))
    hear(session, standing, AttemptState.DELIVERED, now=NOON + timedelta(minutes=3))
    assert reviews_of(session, standing) == ["second_handoff"]

    with pytest.raises(CannotSettle, match="two attempts left"):
        settled(session, standing, RESEND)
    settled(session, standing, LEAVE)

    assert reviews_of(session, standing) == []
    assert [a.state for a in attempts_of(session, standing.intent_id)] == ["delivered", "submitted"]


def test_leaving_a_refused_report_while_the_carrier_is_asked_changes_no_state(session: Session, house: House) -> None:
    standing = make_attempt(session, house, AttemptState.UNKNOWN)
    open_reviews(session, lock_books(session, [standing.intent_id]), {standing.attempt_id: "observation_refused"}, now=NOON)

    settled(session, standing, LEAVE)

    assert reviews_of(session, standing) == []
    assert (intent_of(session, standing).closed_at, attempt_of(session, standing).next_check_at is not None) == (None, True)


def test_failed_gives_the_gates_slot_back_where_nothing_said_that_it_was_taken(session: Session, house: House) -> None:
    standing = in_doubt(session, house)
    assert slots_of(session, standing) != {}

    settled(session, standing, FAILED)

    assert slots_of(session, standing) == {}


def test_a_review_is_settled_once_and_the_second_is_told_how(session: Session, house: House) -> None:
    standing = in_doubt(session, house)
    settled(session, standing, DELIVERED)

    with pytest.raises(AlreadySettled, match="settled as delivered by ann"):
        settled(session, standing, FAILED, actor="ben")


def test_another_tenants_review_is_not_there(session: Session, house: House) -> None:
    standing = in_doubt(session, house)

    with pytest.raises(NoSuchReview):
        settle(session, tenant_id=uuid4(), review_id=review_of(session, standing), answer=answer(LEAVE), now=LATER)

    assert reviews_of(session, standing) == ["horizon"]


# Groups.


def group_of(session: Session, house: House, count: int, *, cause: str = "horizon") -> Group:
    route = rows(session, "SELECT name FROM route WHERE id = %(id)s", id=house.route_id)[0].name
    return Group(route, cause, count)


def test_a_group_is_settled_with_its_count_and_what_cannot_be_stays_open(session: Session, house: House) -> None:
    first = in_doubt(session, house)
    ended = in_doubt(session, house, ref="m-2", sms=BEN, expires_at=(LATER - timedelta(minutes=1)).isoformat())
    other = parked(session, house, subject="c-2")

    done = settle_group(session, tenant_id=house.tenant_id, group=group_of(session, house, 2), answer=answer(RESEND), now=LATER)

    assert done == Settled(1, {WhyNot.ENDED: 1})
    assert [reviews_of(session, s) for s in (first, ended, other)] == [[], ["horizon"], ["lost_leases"]]
    assert count_of(session, "operator_action") == 1
    assert breaches_of(session) == []


def test_a_group_that_is_not_what_was_counted_is_left_alone(session: Session, house: House) -> None:
    standings = [in_doubt(session, house), in_doubt(session, house, ref="m-2", sms=BEN)]

    with pytest.raises(CountChanged, match="2 are open in this group now, not 1"):
        settle_group(session, tenant_id=house.tenant_id, group=group_of(session, house, 1), answer=answer(LEAVE), now=LATER)

    assert [reviews_of(session, s) for s in standings] == [["horizon"]] * 2
    assert count_of(session, "operator_action") == 0


# Races.


@pytest.fixture
def standings(fresh_database: Engine) -> list[Standing]:
    with committing(fresh_database) as session:
        house = make_house(session, policy=asking())
        return [in_doubt(session, house), in_doubt(session, house, ref="m-2", sms=BEN)]


def test_of_two_operators_one_settles_and_the_other_is_told_by_whom(fresh_database: Engine, standings: list[Standing]) -> None:
    def say(settlement: Settlement, actor: str) -> str:
        try:
            with committing(fresh_database) as session:
                settled(session, standings[0], settlement, actor=actor)
        except AlreadySettled as error:
            return str(error).partition(" at ")[0]
        return actor

    told = together(lambda: say(RESEND, "ann"), lambda: say(FAILED, "ben"))

    with Session(fresh_database) as session:
        by = rows(session, "SELECT actor, subject ->> 'as' AS settlement FROM operator_action")
        assert len(by) == 1
        assert sorted(told) == sorted([by[0].actor, f"settled as {by[0].settlement} by {by[0].actor}"])
        assert breaches_of(session) == []


def test_of_two_operators_one_settles_the_group(fresh_database: Engine, standings: list[Standing]) -> None:
    def say(settlement: Settlement, actor: str) -> str:
        try:
            with committing(fresh_database) as session:
                group = group_of(session, standings[0].house, 2)
                done = settle_group(
                    session,
                    tenant_id=standings[0].house.tenant_id,
                    group=group,
                    answer=answer(settlement, actor=actor),
                    now=LATER,
                )
        except CountChanged as error:
            return str(error)
        return f"settled {done.count}"

    told = together(lambda: say(RESEND, "ann"), lambda: say(FAILED, "ben"))

    assert sorted(told) == ["0 are open in this group now, not 2", "settled 2"]
    with Session(fresh_database) as session:
        assert len(rows(session, "SELECT DISTINCT actor FROM operator_action")) == 1
        assert breaches_of(session) == []
