"""What a state means for its intent: retry, wait, close, review; the gate, the route and the person."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import permutations
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.notfound import count_not_found
from app.ledger.observe import observe
from policy.states import AttemptState
from policy.words import ErrorClass, Lane, Source
from tests.making import (
    BEN,
    NOON,
    Standing,
    attempt_of,
    attempts_of,
    claim,
    count_of,
    hear,
    intent_of,
    lease,
    make_attempt,
    make_event,
    make_house,
    make_prepared,
    make_queued,
    make_template,
    outbox_of,
    prepared_of,
    retry_of,
    reviews_of,
    sample,
    slots_of,
    told,
    transitions_of,
)

PREPARED, SUBMITTED, UNKNOWN = AttemptState.PREPARED, AttemptState.SUBMITTED, AttemptState.UNKNOWN
FAILED, DELIVERED = AttemptState.FAILED, AttemptState.DELIVERED
LATER = NOON + timedelta(minutes=1)
NOT_TAKEN = [ErrorClass.NOT_HANDED_OFF, ErrorClass.THROTTLED, ErrorClass.AUTH_CONFIG]


def make_failed(session: Session, error_class: ErrorClass, **rules: object) -> Standing:
    house = make_house(session, policy=sample(**rules))
    return make_attempt(session, house, FAILED, error_class=error_class)


def fail_again(session: Session, standing: Standing, error_class: ErrorClass, *, after: timedelta) -> Standing:
    """Let the newest attempt of an intent fail as well, some time later."""
    now = NOON + after
    retry = prepared_of(session, retry_of(session, standing), now=now)
    hear(session, retry, FAILED, source=Source.ANSWER, error_class=error_class, now=now)
    return retry


def cancel(session: Session, standing: Standing) -> None:
    cancel_intents(session, lock_books(session, [standing.intent_id]), [standing.intent_id], cause_id=None, now=LATER)


def states_of(session: Session, standing: Standing) -> list[str]:
    return [a.state for a in attempts_of(session, standing.intent_id)]


@pytest.mark.parametrize(
    "error_class",
    [
        ErrorClass.PERMANENT_RECIPIENT,
        ErrorClass.PERMANENT_CONTENT,
        ErrorClass.OPTED_OUT,
        ErrorClass.ARTIFACT_MISMATCH,
        ErrorClass.UNCLASSIFIED,
        ErrorClass.BOUNCED_LATE,
    ],
)
def test_what_the_policy_does_not_retry_closes_with_its_class(session: Session, error_class: ErrorClass) -> None:
    standing = make_failed(session, error_class)

    intent = intent_of(session, standing)
    assert states_of(session, standing) == ["failed"]
    assert (intent.state, intent.reason, intent.closed_at) == ("failed", error_class, NOON)
    assert intent.holds_key


def test_a_transient_failure_is_tried_again_after_the_back_off(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)

    due_at = outbox_of(session, standing).due_at
    assert states_of(session, standing) == ["failed", "queued"]
    assert NOON + timedelta(seconds=30) <= due_at <= NOON + timedelta(seconds=45)
    assert transitions_of(session, standing)[1:] == [("queued", "failed", "transient"), (None, "deferred", "retry")]
    assert (intent_of(session, standing).state, intent_of(session, standing).next_at) == ("deferred", due_at)


def test_a_retry_is_another_attempt_with_another_key_and_the_same_text(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)

    first, second = attempts_of(session, standing.intent_id)

    assert (second.ordinal, second.route_id, second.body_hash) == (2, first.route_id, first.body_hash)
    assert second.attempt_key != first.attempt_key
    assert (second.decision_id, second.prepared_at) == (None, None)


def test_the_policys_maximum_ends_the_retries(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)
    fail_again(session, standing, ErrorClass.TRANSIENT, after=timedelta(minutes=2))
    fail_again(session, standing, ErrorClass.TRANSIENT, after=timedelta(minutes=9))

    assert states_of(session, standing) == ["failed", "failed", "failed"]
    assert intent_of(session, standing).reason == "transient"


@pytest.mark.parametrize("error_class", NOT_TAKEN[:2])
def test_what_was_certainly_not_taken_goes_again_without_counting(session: Session, error_class: ErrorClass) -> None:
    standing = make_failed(session, error_class)
    for minutes in (20, 40, 60):
        fail_again(session, standing, error_class, after=timedelta(minutes=minutes))

    assert states_of(session, standing) == ["failed"] * 4 + ["queued"]
    assert intent_of(session, standing).closed_at is None


@pytest.mark.parametrize("error_class", NOT_TAKEN)
def test_what_was_certainly_not_taken_gives_its_slot_back(session: Session, error_class: ErrorClass) -> None:
    assert slots_of(session, make_failed(session, error_class)) == {}


CAPPED = {"cooldown": "0s", "caps": [{"limit": 1, "window": "24h", "per": "category"}]}


@pytest.mark.parametrize("error_class", NOT_TAKEN[:2])
def test_what_was_certainly_not_taken_is_not_counted_by_the_caps(session: Session, error_class: ErrorClass) -> None:
    """Nobody was contacted: the next one need not wait a day."""
    house = make_house(session, policy=sample(**CAPPED))
    make_attempt(session, house, FAILED, error_class=error_class)

    second = make_queued(session, house, subject="c-2")

    assert slots_of(session, second) == {"contacted": []}
    assert intent_of(session, second).state == "queued"


def test_what_the_carrier_had_taken_is_counted_by_the_caps_also_when_it_failed(session: Session) -> None:
    house = make_house(session, policy=sample(**CAPPED))
    standing = make_attempt(session, house, SUBMITTED, remote_id="SM1")

    hear(session, standing, FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER)

    assert len(slots_of(session, standing)["contacted"]) == 1


def test_two_that_were_not_taken_in_one_page_both_give_their_slots_back(session: Session) -> None:
    """One person, two categories: one statement frees both."""
    raw = sample()
    raw["categories"]["operational"] |= {"hours": None, "lane": "urgent"}
    house = make_house(session, policy=raw)
    make_template(session, house.tenant_id, name="news", category="operational")
    first = make_prepared(session, house)
    news = make_queued(session, house, subject="c-2", template="news")
    second = prepared_of(session, news)
    assert set(slots_of(session, first)) == {"transactional", "operational"}

    observe(session, [told(s, FAILED, error_class=ErrorClass.NOT_HANDED_OFF) for s in (first, second)], now=LATER)

    assert slots_of(session, first) == {}


@pytest.mark.parametrize("state", [SUBMITTED, UNKNOWN, DELIVERED])
def test_what_the_carrier_may_have_keeps_its_slot(session: Session, state: AttemptState) -> None:
    standing = make_attempt(session, make_house(session), state, remote_id="SM1")

    assert slots_of(session, standing)["transactional"]["attempt_id"] == str(standing.attempt_id)


def test_a_failure_of_what_the_carrier_had_taken_keeps_the_slot(session: Session) -> None:
    standing = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")

    hear(session, standing, FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER)

    assert slots_of(session, standing)["transactional"]["attempt_id"] == str(standing.attempt_id)


def test_a_throttled_attempt_waits_at_least_as_long_as_the_carrier_asks(session: Session) -> None:
    standing = make_prepared(session, make_house(session))

    hear(session, standing, FAILED, error_class=ErrorClass.THROTTLED, retry_after=900.0)

    assert NOON + timedelta(seconds=900) <= outbox_of(session, standing).due_at <= NOON + timedelta(seconds=930)


def test_a_retry_that_would_come_after_the_end_closes_now(session: Session) -> None:
    standing = make_prepared(session, make_house(session), expires_at="2026-12-01T17:10:00Z")

    hear(session, standing, FAILED, error_class=ErrorClass.THROTTLED, retry_after=900.0)

    intent = intent_of(session, standing)
    assert (intent.reason, intent.closed_at, intent.holds_key) == ("throttled", NOON, False)


def test_the_retry_window_ends_the_retries_before_the_event_does(session: Session) -> None:
    standing = make_failed(session, ErrorClass.NOT_HANDED_OFF)
    retry = prepared_of(session, retry_of(session, standing), now=NOON + timedelta(hours=5, minutes=59, seconds=59))

    hear(session, retry, FAILED, error_class=ErrorClass.NOT_HANDED_OFF, now=NOON + timedelta(hours=5, minutes=59, seconds=59))

    assert states_of(session, standing) == ["failed", "failed"]
    assert (intent_of(session, standing).reason, intent_of(session, standing).holds_key) == ("not_handed_off", False)


def test_a_refused_login_stops_the_route_once_and_goes_again_later(session: Session) -> None:
    house = make_house(session)
    first = make_prepared(session, house)
    second = make_prepared(session, house, subject="c-2", ref="m-2", sms=BEN)

    observe(session, [told(s, FAILED, error_class=ErrorClass.AUTH_CONFIG) for s in (first, second)], now=NOON)
    hear(session, first, FAILED, error_class=ErrorClass.AUTH_CONFIG, now=LATER)

    pauses = rows(session, "SELECT route_id, cause, started_by FROM pause")
    assert [(p.route_id, p.cause, p.started_by) for p in pauses] == [(house.route_id, "auth_config", "daybook")]
    assert outbox_of(session, first).due_at >= NOON + timedelta(seconds=60)


def test_an_opt_out_heard_from_the_carrier_suppresses_the_person_and_closes(session: Session) -> None:
    house = make_house(session)
    waiting = make_queued(session, house, subject="c-2", ref="m-7")
    standing = make_prepared(session, house)

    hear(session, standing, FAILED, error_class=ErrorClass.OPTED_OUT, error_code="21610", now=LATER)
    claim(session, house, now=LATER + timedelta(minutes=20))

    assert (intent_of(session, standing).reason, count_of(session, "suppression", source="carrier")) == ("opted_out", 1)
    assert transitions_of(session, waiting)[-1][1:] == ("suppressed", "opted_out")


def test_an_opt_out_counts_also_in_a_report_that_comes_too_late(session: Session) -> None:
    """Side effects follow the evidence, not the verdict."""
    standing = make_attempt(session, make_house(session), DELIVERED, remote_id="SM1")

    hear(session, standing, FAILED, error_class=ErrorClass.OPTED_OUT, now=LATER)

    assert (attempt_of(session, standing).state, count_of(session, "suppression")) == ("delivered", 1)


def test_a_delivered_after_a_failure_cancels_the_retry_that_waits(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)

    hear(session, standing, DELIVERED, remote_id="SM1", now=LATER)

    intent = intent_of(session, standing)
    assert (states_of(session, standing), outbox_of(session, standing)) == (["delivered", "cancelled"], None)
    assert (intent.state, intent.reason, reviews_of(session, standing)) == ("delivered", "delivered", [])
    assert transitions_of(session, standing)[-1] == ("deferred", "cancelled", "delivered")


def test_a_retry_under_a_lease_is_cancelled_as_well(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)
    leased = lease(session, retry_of(session, standing), now=LATER)

    hear(session, standing, DELIVERED, remote_id="SM1", now=LATER)

    assert attempt_of(session, leased).state == "cancelled"


STEPS = {
    "first delivered": (0, DELIVERED),
    "second submitted": (1, SUBMITTED),
    "second delivered": (1, DELIVERED),
}


@pytest.mark.parametrize("order", list(permutations(STEPS)))
def test_two_attempts_that_both_left_are_a_question_in_whatever_order_it_is_heard(
    session: Session, order: tuple[str, ...]
) -> None:
    """The person may have been contacted twice: somebody must look at it."""
    first = make_failed(session, ErrorClass.TRANSIENT)
    both = (first, prepared_of(session, retry_of(session, first), now=LATER))

    for n, step in enumerate(order):
        which, state = STEPS[step]
        hear(session, both[which], state, remote_id=f"SM{which}", now=LATER + timedelta(seconds=n))

    assert reviews_of(session, first) == ["second_handoff"]
    assert (intent_of(session, first).state, intent_of(session, first).closed_at is None) == ("delivered", False)


@pytest.mark.parametrize("state", [SUBMITTED, UNKNOWN])
def test_a_second_handoff_is_a_question_also_when_its_answer_comes_last(session: Session, state: AttemptState) -> None:
    first = make_failed(session, ErrorClass.TRANSIENT)
    second = prepared_of(session, retry_of(session, first), now=LATER)

    hear(session, first, DELIVERED, remote_id="SM1", now=LATER)
    hear(session, second, state, source=Source.ANSWER, now=LATER)

    assert reviews_of(session, first) == ["second_handoff"]


def test_a_second_attempt_that_never_left_is_no_question(session: Session) -> None:
    first = make_failed(session, ErrorClass.TRANSIENT)
    second = prepared_of(session, retry_of(session, first), now=LATER)

    hear(session, first, DELIVERED, remote_id="SM1", now=LATER)
    hear(session, second, FAILED, error_class=ErrorClass.NOT_HANDED_OFF, now=LATER)

    assert (reviews_of(session, first), states_of(session, first)) == ([], ["delivered", "failed"])


def test_a_settled_question_is_not_asked_again_by_a_repeated_report(session: Session) -> None:
    first = make_failed(session, ErrorClass.TRANSIENT)
    second = make_second(session, first)
    hear(session, first, DELIVERED, remote_id="SM1", now=LATER)
    rows(session, "UPDATE review SET settled_at = %(now)s, settled_as = 'seen'", now=LATER)

    hear(session, first, DELIVERED, now=LATER)
    hear(session, second, SUBMITTED, now=LATER)

    assert (reviews_of(session, first), count_of(session, "review")) == ([], 1)


def make_second(session: Session, first: Standing) -> Standing:
    second = prepared_of(session, retry_of(session, first), now=LATER)
    hear(session, second, SUBMITTED, source=Source.ANSWER, remote_id="SM2", now=LATER)
    return second


def test_a_failed_one_that_the_carrier_has_after_all_holds_the_retry_back(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)

    hear(session, standing, SUBMITTED, remote_id="SM1", now=LATER)

    row, horizon_at = outbox_of(session, standing), attempt_of(session, standing).horizon_at
    assert (row.due_at, row.reason, row.lease) == (horizon_at, "earlier_attempt", None)
    assert transitions_of(session, standing)[-1] == ("deferred", "deferred", "earlier_attempt")
    assert intent_of(session, standing).next_at == horizon_at


def test_the_answer_that_is_stored_after_the_receipt_of_the_failure_holds_no_retry_back(session: Session) -> None:
    """The carrier took it before it told of the failure: that the retry waits for a day would be the order of two commits."""
    standing = make_prepared(session, make_house(session, policy=sample()))
    hear(session, standing, FAILED, error_class=ErrorClass.TRANSIENT, remote_id="SM1", now=LATER)
    before = outbox_of(session, standing)

    hear(session, standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1", now=LATER)

    row = outbox_of(session, standing)
    assert (row.due_at, row.reason) == (before.due_at, "retry")
    assert transitions_of(session, standing)[-1] == (None, "deferred", "retry")


def test_an_answer_after_another_answer_of_failure_holds_the_retry_back(session: Session) -> None:
    """Two had it in hand, and one of them sent it after all."""
    standing = make_prepared(session, make_house(session, policy=sample()))
    hear(session, standing, FAILED, error_class=ErrorClass.TRANSIENT, source=Source.ANSWER, now=LATER)

    hear(session, standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1", now=LATER)

    assert outbox_of(session, standing).reason == "earlier_attempt"


def test_a_held_retry_is_told_of_once(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)
    hear(session, standing, SUBMITTED, remote_id="SM1", now=LATER)
    before = transitions_of(session, standing)

    hear(session, standing, SUBMITTED, source=Source.POLL, remote_id="SM1", now=LATER)

    assert transitions_of(session, standing) == before


def test_a_leased_retry_that_is_held_back_is_not_prepared(session: Session) -> None:
    standing = make_failed(session, ErrorClass.TRANSIENT)
    leased = lease(session, retry_of(session, standing), now=LATER)

    hear(session, standing, SUBMITTED, remote_id="SM1", now=LATER)

    assert outbox_of(session, leased).lease is None


def test_an_older_attempts_word_is_history_and_not_the_intents_state(session: Session) -> None:
    standing = make_doubtful_resent(session)

    hear(session, standing, FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER + timedelta(hours=1))

    assert transitions_of(session, standing)[-1] == ("unknown", "failed", "permanent_recipient")
    assert (intent_of(session, standing).state, intent_of(session, standing).reason) == ("deferred", "retry")


def make_doubtful_resent(session: Session) -> Standing:
    """Make an attempt in doubt that was not found, and that the policy sends again."""
    house = make_house(session, policy=sample(ambiguity={"not_found": "resend", "horizon": "review"}))
    standing = make_attempt(session, house, UNKNOWN)
    for minutes in (11, 12):
        count_not_found(session, [standing.attempt_id], now=NOON + timedelta(minutes=minutes))
    return standing


def test_a_review_is_settled_when_what_it_asked_is_answered(session: Session) -> None:
    standing = make_reviewed(session)

    hear(session, standing, DELIVERED, now=LATER + timedelta(hours=1))

    assert (reviews_of(session, standing), count_of(session, "review", settled_as="heard")) == ([], 1)


def test_an_intent_that_is_tried_again_is_no_longer_in_review(session: Session) -> None:
    """Every open intent is exactly one of: due, leased, waiting on an answer, or in review."""
    standing = make_reviewed(session)

    hear(session, standing, FAILED, error_class=ErrorClass.TRANSIENT, now=LATER + timedelta(hours=1))

    assert states_of(session, standing) == ["failed", "queued"]
    assert reviews_of(session, standing) == []


def make_reviewed(session: Session) -> Standing:
    standing = make_attempt(session, make_house(session), UNKNOWN)
    for minutes in (11, 12):
        count_not_found(session, [standing.attempt_id], now=NOON + timedelta(minutes=minutes))
    assert reviews_of(session, standing) == ["not_found"]
    return standing


def test_a_cancelled_intent_is_not_tried_again(session: Session) -> None:
    standing = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")
    cancel(session, standing)

    hear(session, standing, FAILED, error_class=ErrorClass.TRANSIENT, now=LATER)

    intent = intent_of(session, standing)
    assert (states_of(session, standing), intent.closed_at) == (["failed"], LATER)
    assert (intent.state, intent.reason, intent.close_request) == ("failed", "transient", "cancelled")


def test_an_answer_to_a_cancelled_intent_is_asked_about_at_the_horizon_only(session: Session) -> None:
    """Nobody waits for the outcome any more: also not when the answer comes after the cancel."""
    standing = make_prepared(session, make_house(session))
    cancel(session, standing)
    deadline = attempt_of(session, standing).next_check_at

    hear(session, standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1", now=LATER)

    attempt = attempt_of(session, standing)
    assert (deadline, attempt.next_check_at) == (NOON + timedelta(seconds=25), attempt.horizon_at)


def test_a_close_without_a_handoff_frees_the_key_for_the_event_that_joined(session: Session) -> None:
    standing = make_prepared(session, make_house(session), expires_at="2026-12-01T17:10:00Z")
    joined = make_event(session, standing.house, key="k-2")

    hear(session, standing, FAILED, error_class=ErrorClass.THROTTLED, retry_after=900.0, now=LATER)

    assert intents_of(session, joined.event_id) == ["queued"]


def test_a_close_after_a_refusal_keeps_the_key(session: Session) -> None:
    standing = make_prepared(session, make_house(session))
    joined = make_event(session, standing.house, key="k-2")

    hear(session, standing, FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER)

    assert (intent_of(session, standing).holds_key, intents_of(session, joined.event_id)) == (True, [])


def test_throttled_but_taken_after_all_keeps_the_key(session: Session) -> None:
    standing = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1", expires_at="2026-12-01T17:10:00Z")

    hear(session, standing, FAILED, error_class=ErrorClass.THROTTLED, retry_after=900.0, now=LATER)

    assert intent_of(session, standing).holds_key


def intents_of(session: Session, event_id: UUID) -> list[str]:
    return [row.state for row in rows(session, "SELECT state FROM intent WHERE event_id = %(id)s", id=event_id)]


def test_many_intents_in_one_page_each_get_their_own_consequence(session: Session) -> None:
    house = make_house(session)
    standings = [make_prepared(session, house, subject=f"c-{n}", ref=f"m-{n}", sms=f"+1201555012{n}") for n in range(4)]
    classes = [None, ErrorClass.TRANSIENT, ErrorClass.PERMANENT_CONTENT, None]
    states = [SUBMITTED, FAILED, FAILED, UNKNOWN]

    observe(session, [told(s, st, error_class=c) for s, st, c in zip(standings, states, classes, strict=True)], now=LATER)

    assert [intent_of(session, s).state for s in standings] == ["in_flight", "deferred", "failed", "unknown"]
    assert [outbox_of(session, s) is not None for s in standings] == [False, True, False, False]
    assert [len(transitions_of(session, s)) for s in standings] == [2, 3, 2, 2]


def test_a_retry_waits_in_its_own_lane(session: Session) -> None:
    house = make_house(session)
    make_template(session, house.tenant_id, name="news", category="operational")
    standing = make_queued(session, house, template="news")
    (page,) = claim(session, house, lane=Lane.BULK)
    assert page.attempt_ids == (standing.attempt_id,)

    hear(session, replace(standing, lease=page.lease), FAILED, error_class=ErrorClass.NOT_HANDED_OFF)

    assert [row.lane for row in rows(session, "SELECT lane FROM outbox")] in ([], ["bulk"])


def test_an_ordinary_retry_that_arrives_is_no_question(session: Session) -> None:
    """The carrier took the first and says that it failed: that is why there is a second."""
    first = make_attempt(session, make_house(session), SUBMITTED, remote_id="SM1")
    hear(session, first, FAILED, error_class=ErrorClass.TRANSIENT, now=NOON)
    second = prepared_of(session, retry_of(session, first), now=LATER)

    hear(session, second, SUBMITTED, source=Source.ANSWER, remote_id="SM2", now=LATER)
    hear(session, second, DELIVERED, remote_id="SM2", now=LATER)

    assert (states_of(session, first), reviews_of(session, first)) == (["failed", "delivered"], [])


def test_an_attempt_sent_again_by_the_rule_is_a_question_only_if_the_first_one_left_after_all(session: Session) -> None:
    first = make_doubtful_resent(session)
    second = prepared_of(session, retry_of(session, first), now=NOON + timedelta(minutes=13))

    hear(session, second, DELIVERED, remote_id="SM2", now=NOON + timedelta(minutes=14))

    assert reviews_of(session, first) == []

    hear(session, first, SUBMITTED, source=Source.ANSWER, remote_id="SM1", now=NOON + timedelta(minutes=15))

    assert reviews_of(session, first) == ["second_handoff"]
