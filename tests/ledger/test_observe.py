"""Observe: every report is kept with its judgement, the state climbs to the join, whatever the order."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.flows.keep import observe_until_kept
from app.ground.db import rows
from app.ground.ids import AttemptId
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.observe import observe
from policy.states import SMS_RANKS, AttemptState, Judgement, hear, judge
from policy.words import ErrorClass, Reason, Source
from tests import making
from tests.making import (
    BEN,
    NOON,
    attempt_of,
    beside,
    committing,
    count_of,
    intent_of,
    make_attempt,
    make_house,
    make_prepared,
    make_queued,
    outbox_of,
    reviews_of,
    told,
    transitions_of,
    wait_until_blocked,
)

PREPARED, SUBMITTED, UNKNOWN = AttemptState.PREPARED, AttemptState.SUBMITTED, AttemptState.UNKNOWN
FAILED, DELIVERED = AttemptState.FAILED, AttemptState.DELIVERED
REPORTS = (SUBMITTED, UNKNOWN, FAILED, DELIVERED)
LATER = NOON + timedelta(minutes=1)


def observations_of(session: Session) -> list[tuple[str, str]]:
    found = rows(session, "SELECT state, judgement FROM observation ORDER BY observed_at, id")
    return [(row.state, row.judgement) for row in found]


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("state", [PREPARED, *REPORTS])
def test_every_report_is_kept_with_its_judgement(session: Session, state: AttemptState, report: AttemptState) -> None:
    standing = make_attempt(session, make_house(session), state)
    before = len(observations_of(session))

    (observed,) = making.hear(session, standing, report, now=LATER)

    assert observed.judgement is judge(state, report)
    assert observations_of(session)[before:] == [(report, judge(state, report))]
    assert attempt_of(session, standing).state == hear(state, report)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(REPORTS), min_size=1, max_size=4).flatmap(lambda r: st.tuples(st.just(r), st.permutations(r))))
def test_the_order_of_reports_does_not_matter_to_the_books(
    session: Session, reports: tuple[list[AttemptState], list[AttemptState]]
) -> None:
    """Late, repeated and contradictory reports end in the same books, whatever came first."""
    house = make_house(session)
    ends = []
    for n, order in enumerate(reports):
        standing = make_prepared(session, house, ref=f"m-{n}", sms=f"+1201555012{n}")
        for report in order:
            making.hear(session, standing, report, now=LATER)
        attempt, intent = attempt_of(session, standing), intent_of(session, standing)
        ends.append((attempt.state, attempt.taken, intent.state, intent.reason, intent.closed_at, attempt.next_check_at is None))
        transitions_of(session, standing)

    assert ends[0] == ends[1]


@pytest.mark.parametrize("order", list(permutations(REPORTS)))
def test_reports_in_one_page_are_joined_as_if_they_came_one_by_one(session: Session, order: tuple[AttemptState, ...]) -> None:
    standing = make_prepared(session, make_house(session))

    observed = observe(session, [told(standing, state) for state in order], now=LATER)

    state, judgements = PREPARED, []
    for each in order:
        judgements.append(judge(state, each))
        state = hear(state, each)
    assert [o.judgement for o in observed] == judgements
    assert len(transitions_of(session, standing)) == 1 + judgements.count(Judgement.APPLIED)
    assert attempt_of(session, standing).state == DELIVERED


def test_only_an_applied_report_is_a_transition_and_names_its_cause(session: Session) -> None:
    standing = make_prepared(session, make_house(session))

    making.hear(session, standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1")
    making.hear(session, standing, SUBMITTED, remote_id="SM1")
    making.hear(session, standing, DELIVERED, remote_id="SM1", now=LATER)
    making.hear(session, standing, SUBMITTED, source=Source.POLL, now=LATER)

    causes = rows(session, "SELECT cause FROM transition WHERE intent_id = %(id)s ORDER BY n", id=standing.intent_id)
    assert transitions_of(session, standing) == [
        (None, "queued", None),
        ("queued", "handed_off", None),
        ("handed_off", "delivered", "delivered"),
    ]
    assert [row.cause for row in causes] == ["acceptance", "answer", "receipt"]


def test_a_late_receipt_settles_an_unknown_attempt(session: Session) -> None:
    """A time-out is no failure: the receipt that comes later decides."""
    standing = make_attempt(session, make_house(session), UNKNOWN)

    making.hear(session, standing, DELIVERED, now=LATER)

    intent = intent_of(session, standing)
    assert transitions_of(session, standing)[-1] == ("unknown", "delivered", "delivered")
    assert (intent.state, intent.reason, intent.closed_at, intent.holds_key) == ("delivered", "delivered", LATER, True)


def test_a_sent_that_comes_after_delivered_changes_nothing(session: Session) -> None:
    standing = make_attempt(session, make_house(session), DELIVERED, remote_id="SM1")
    before = attempt_of(session, standing)

    making.hear(session, standing, SUBMITTED, now=LATER)

    assert attempt_of(session, standing) == before


def test_observing_twice_under_one_id_changes_nothing(session: Session) -> None:
    standing = make_prepared(session, make_house(session))
    report = told(standing, SUBMITTED, remote_id="SM1")

    first, second = observe(session, [report], now=NOON), observe(session, [report], now=LATER)

    assert (len(first), second, count_of(session, "observation")) == (1, [], 1)


def test_a_report_about_an_attempt_that_we_do_not_know_is_passed_over(session: Session) -> None:
    standing = make_prepared(session, make_house(session))
    stranger = replace(told(standing, DELIVERED), attempt_id=AttemptId(uuid4()))

    observed = observe(session, [stranger, told(standing, SUBMITTED)], now=NOON)

    assert [o.told.attempt_id for o in observed] == [standing.attempt_id]


@pytest.mark.parametrize("source", [Source.ANSWER, Source.RECEIPT, Source.POLL])
def test_a_remote_id_is_kept_by_whichever_report_brings_it(session: Session, source: Source) -> None:
    standing = make_prepared(session, make_house(session))

    making.hear(session, standing, SUBMITTED, source=source, remote_id="SM1")

    (held,) = rows(session, "SELECT * FROM remote_id")
    assert (held.attempt_id, held.remote_id, held.route_id) == (standing.attempt_id, "SM1", standing.house.route_id)


def test_a_stale_report_still_brings_the_remote_id_and_says_that_it_was_taken(session: Session) -> None:
    standing = make_attempt(session, make_house(session), UNKNOWN)

    making.hear(session, standing, SUBMITTED, remote_id="SM1")

    assert count_of(session, "remote_id", attempt_id=standing.attempt_id) == 1
    assert (attempt_of(session, standing).state, attempt_of(session, standing).taken) == ("unknown", True)


def test_a_second_remote_id_is_a_conflict_and_the_first_stays(session: Session) -> None:
    standing = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")

    (observed,) = making.hear(session, standing, DELIVERED, remote_id="SM2")

    assert (observed.conflict, observed.judgement) == (True, Judgement.APPLIED)
    assert [row.remote_id for row in rows(session, "SELECT remote_id FROM remote_id")] == ["SM1"]
    assert count_of(session, "observation", conflict=True, remote_id="SM2") == 1


def test_another_attempts_remote_id_is_a_conflict_and_never_an_exception(session: Session) -> None:
    house = make_house(session)
    first = make_attempt(session, house, SUBMITTED, remote_id="SM1")
    second = make_prepared(session, house, subject="c-2", ref="m-2", sms=BEN)

    (observed,) = making.hear(session, second, SUBMITTED, remote_id="SM1")

    assert observed.conflict
    assert [row.attempt_id for row in rows(session, "SELECT attempt_id FROM remote_id")] == [first.attempt_id]


def test_one_page_that_names_one_remote_id_for_two_attempts_keeps_it_once(session: Session) -> None:
    house = make_house(session)
    first, second = make_prepared(session, house), make_prepared(session, house, subject="c-2", ref="m-2", sms=BEN)

    observed = observe(session, [told(s, SUBMITTED, remote_id="SM1") for s in (first, second)], now=NOON)

    assert sorted(o.conflict for o in observed) == [False, True]


def test_one_remote_id_may_stand_on_two_routes(session: Session) -> None:
    first = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")

    second = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")

    assert count_of(session, "remote_id", remote_id="SM1") == 2
    assert first.house.route_id != second.house.route_id


def test_an_error_class_once_known_is_not_erased(session: Session) -> None:
    standing = make_attempt(session, make_house(session), FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT)

    making.hear(session, standing, FAILED)
    making.hear(session, standing, DELIVERED)

    assert attempt_of(session, standing).error_class == "permanent_recipient"


def test_a_class_that_only_a_repeated_report_knows_is_taken_up(session: Session) -> None:
    standing = make_attempt(session, make_house(session), FAILED)

    making.hear(session, standing, FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, error_code="21211")

    attempt = attempt_of(session, standing)
    assert (attempt.error_class, attempt.error_code) == ("permanent_recipient", "21211")


def test_a_failure_without_a_class_is_called_unclassified(session: Session) -> None:
    standing = make_attempt(session, make_house(session), FAILED)

    assert transitions_of(session, standing)[-1] == ("queued", "failed", "unclassified")
    assert intent_of(session, standing).reason == "unclassified"


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_about_a_queued_attempt_takes_it_out_of_the_outbox(session: Session, report: AttemptState) -> None:
    """A restored ledger: the carrier's word is a fact, ours was a plan."""
    standing = make_queued(session, make_house(session))

    making.hear(session, standing, report, remote_id="SM1")

    assert (attempt_of(session, standing).state, outbox_of(session, standing)) == (report, None)
    assert transitions_of(session, standing)[1][0] == "queued"


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_about_a_cancelled_attempt_applies_and_opens_nothing_again(session: Session, report: AttemptState) -> None:
    standing = make_queued(session, make_house(session))
    cancel_intents(session, lock_books(session, [standing.intent_id]), [standing.intent_id], cause_id=None, now=NOON)

    making.hear(session, standing, report, error_class=ErrorClass.TRANSIENT if report is FAILED else None, now=LATER)

    intent = intent_of(session, standing)
    assert attempt_of(session, standing).state == report
    assert (intent.closed_at, outbox_of(session, standing), reviews_of(session, standing)) == (NOON, None, [])
    assert transitions_of(session, standing)[2][:2] == ("cancelled", {SUBMITTED: "handed_off"}.get(report, report))


def test_polling_starts_with_the_first_answer_and_ends_with_an_outcome(session: Session) -> None:
    house = make_house(session)

    submitted = make_attempt(session, house, SUBMITTED, remote_id="SM1")
    first_check = attempt_of(session, submitted).next_check_at
    making.hear(session, submitted, DELIVERED, now=LATER)

    assert NOON + timedelta(seconds=15) <= first_check <= NOON + timedelta(seconds=18)
    assert attempt_of(session, submitted).next_check_at is None


def test_a_carrier_that_answers_no_questions_is_looked_at_again_at_the_horizon(session: Session) -> None:
    standing = make_attempt(session, make_house(session, carrier="kannel"), SUBMITTED)

    attempt = attempt_of(session, standing)
    assert attempt.next_check_at == attempt.horizon_at == NOON + timedelta(hours=24)


def test_a_repeated_report_does_not_put_the_next_question_off(session: Session) -> None:
    standing = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")
    before = attempt_of(session, standing).next_check_at

    making.hear(session, standing, SUBMITTED, now=LATER)

    assert attempt_of(session, standing).next_check_at == before


def test_a_report_that_the_ledger_refuses_goes_to_review_alone(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
        poisoned = make_prepared(session, house)
        whole = make_prepared(session, house, subject="c-2", ref="m-2", sms=BEN)

    observed = observe_until_kept([told(poisoned, SUBMITTED, remote_id="SM\x001"), told(whole, SUBMITTED, remote_id="SM2")])

    assert [o.told.attempt_id for o in observed] == [whole.attempt_id]
    with Session(fresh_database) as session:
        assert (attempt_of(session, poisoned).state, attempt_of(session, whole).state) == ("prepared", "submitted")
        assert (reviews_of(session, poisoned), reviews_of(session, whole)) == (["observation_refused"], [])


def test_two_reports_that_race_are_joined_by_rank_and_not_by_arrival(fresh_database: Engine) -> None:
    """A delivered that lands while the send's answer is being written must not be overwritten by it."""
    with committing(fresh_database) as session:
        standing = make_prepared(session, make_house(session))

    with Session(fresh_database) as receipt, receipt.begin():
        making.hear(receipt, standing, DELIVERED, remote_id="SM1", now=LATER)
        with beside(lambda: observe_until_kept([told(standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1")])) as (answer,):
            wait_until_blocked(fresh_database)
            receipt.commit()
            (observed,) = answer.result(10)

    assert (observed.judgement, observed.conflict) == (Judgement.STALE, False)
    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "delivered"
        assert transitions_of(session, standing) == [(None, "queued", None), ("queued", "delivered", "delivered")]


def test_one_remote_id_brought_for_two_intents_at_once_is_kept_for_the_first(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
        first = make_prepared(session, house)
        second = make_prepared(session, house, subject="c-2", ref="m-2", sms=BEN)

    with Session(fresh_database) as one, one.begin():
        making.hear(one, first, SUBMITTED, remote_id="SM1")
        with beside(lambda: observe_until_kept([told(second, SUBMITTED, remote_id="SM1")])) as (other,):
            wait_until_blocked(fresh_database)
            one.commit()
            other.result(10)

    with Session(fresh_database) as session:
        assert [row.attempt_id for row in rows(session, "SELECT attempt_id FROM remote_id")] == [first.attempt_id]
        assert attempt_of(session, second).state == "submitted"


def test_the_words_for_doubt_reach_the_history(session: Session) -> None:
    standing = make_prepared(session, make_house(session))

    making.hear(session, standing, UNKNOWN, source=Source.ANSWER, reason=Reason.TIMED_OUT)

    assert transitions_of(session, standing)[-1] == ("queued", "unknown", "timed_out")
    assert SMS_RANKS[UNKNOWN] < SMS_RANKS[FAILED]
