"""Reconcile: what nobody answered is put in doubt, settled by rule or person, and never forgotten."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.pause import Scope, pause
from app.flows.reconcile.deadlines import put_in_doubt
from app.flows.reconcile.expiry import expire_page
from app.flows.reconcile.horizons import reach_horizons
from app.ground.db import rows
from app.ledger.books import lock_books
from app.ledger.notfound import count_not_found
from app.ledger.observe import observe
from policy.states import AttemptState
from policy.words import Source
from tests.making import (
    BEN,
    Standing,
    attempt_of,
    attempts_of,
    beside,
    claim,
    clock,
    committing,
    count_of,
    hear,
    intent_of,
    make_attempt,
    make_house,
    make_leased,
    make_prepared,
    make_queued,
    outbox_of,
    reviews_of,
    sample,
    told,
    transitions_of,
    wait_until_blocked,
)

SUBMITTED, UNKNOWN, DELIVERED = AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.DELIVERED
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def made(engine: Engine, state: AttemptState, *, ago: timedelta, house: Any = None, **changes: Any) -> Standing:
    """Take an attempt to a state that it has had for a while."""
    with committing(engine) as session:
        now = clock(session) - ago
        return make_attempt(session, make_house(session, **(house or {}), now=now), state, now=now, **changes)


def test_a_prepared_attempt_past_its_deadline_is_in_doubt_and_not_failed(fresh_database: Engine) -> None:
    standing = made(fresh_database, AttemptState.PREPARED, ago=MINUTE)

    assert put_in_doubt() == 1

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.next_check_at > clock(session)) == ("unknown", True)
        assert transitions_of(session, standing)[-1] == ("queued", "unknown", "no_answer")
        assert len(attempts_of(session, standing.intent_id)) == 1


def test_a_prepared_attempt_within_its_deadline_is_left_alone(fresh_database: Engine) -> None:
    standing = made(fresh_database, AttemptState.PREPARED, ago=timedelta(seconds=5))

    assert put_in_doubt() == 0

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "prepared"


def test_an_answer_after_the_deadline_still_counts(fresh_database: Engine) -> None:
    standing = made(fresh_database, AttemptState.PREPARED, ago=MINUTE)
    put_in_doubt()

    with committing(fresh_database) as session:
        observe(session, [told(standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1")], now=clock(session))
        hear(session, standing, DELIVERED, remote_id="SM1", now=clock(session))

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "delivered"


def test_an_answer_that_is_being_written_is_not_overtaken_by_the_deadline(fresh_database: Engine) -> None:
    """A sweep that selects rows and then judges them without looking again overwrites what came between."""
    standing = made(fresh_database, AttemptState.PREPARED, ago=MINUTE)

    with Session(fresh_database) as answering, answering.begin():
        hear(answering, standing, SUBMITTED, source=Source.ANSWER, remote_id="SM1", now=clock(answering))
        with beside(put_in_doubt) as (sweeping,):
            assert sweeping.result(10) == 0
            answering.commit()

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "submitted"


def test_the_horizon_asks_a_person_where_receipts_are_reliable(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, ago=25 * HOUR, remote_id="SM1")

    assert reach_horizons() == 1

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.next_check_at, reviews_of(session, standing)) == ("unknown", None, ["horizon"])
        assert transitions_of(session, standing)[-1] == ("handed_off", "unknown", "horizon")
        assert intent_of(session, standing).closed_at is None


@pytest.mark.parametrize("state", [SUBMITTED, UNKNOWN])
def test_the_horizon_closes_where_the_rule_says_so(fresh_database: Engine, state: AttemptState) -> None:
    rule = {"policy": sample(ambiguity={"not_found": "review", "horizon": "close"})}
    standing = made(fresh_database, state, ago=25 * HOUR, house=rule, remote_id="SM1")

    reach_horizons()

    with Session(fresh_database) as session:
        intent = intent_of(session, standing)
        assert (intent.state, intent.reason, intent.closed_at is None) == ("unknown", "horizon", False)
        assert (intent.holds_key, reviews_of(session, standing)) == (True, [])


@pytest.mark.parametrize("state", [SUBMITTED, UNKNOWN])
def test_the_horizon_asks_nobody_where_no_receipt_was_to_be_expected(fresh_database: Engine, state: AttemptState) -> None:
    """Whatever the policy says: there would be a question for every text."""
    standing = made(fresh_database, state, ago=25 * HOUR, house={"carrier": "null"}, remote_id="SM1")

    reach_horizons()

    with Session(fresh_database) as session:
        intent = intent_of(session, standing)
        assert (attempt_of(session, standing).state, intent.state, intent.reason) == ("unknown", "unknown", "no_receipt")
        assert (intent.closed_at is None, intent.holds_key) == (False, True)
        assert count_of(session, "review") == 0


def test_a_horizon_is_reached_once(fresh_database: Engine) -> None:
    made(fresh_database, UNKNOWN, ago=25 * HOUR)

    assert (reach_horizons(), reach_horizons()) == (1, 0)


def test_before_the_horizon_nothing_is_settled(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, ago=23 * HOUR, remote_id="SM1")

    assert reach_horizons() == 0

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "submitted"


def test_a_routes_own_horizon_is_kept(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, ago=2 * HOUR, house={"settings": {"horizon_seconds": "3600"}}, remote_id="SM1")

    assert reach_horizons() == 1

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "unknown"


def test_a_prepared_attempt_that_was_forgotten_for_days_ends_in_doubt_at_once(fresh_database: Engine) -> None:
    standing = made(fresh_database, AttemptState.PREPARED, ago=50 * HOUR)

    put_in_doubt()

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.next_check_at, reviews_of(session, standing)) == ("unknown", None, ["horizon"])


def test_an_outcome_after_the_horizon_settles_the_review(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, ago=25 * HOUR, remote_id="SM1")
    reach_horizons()

    with committing(fresh_database) as session:
        hear(session, standing, DELIVERED, remote_id="SM1", now=clock(session))

    with Session(fresh_database) as session:
        assert (reviews_of(session, standing), intent_of(session, standing).reason) == ([], "delivered")


def test_a_receipt_at_the_moment_of_the_horizon_is_not_overwritten(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, ago=25 * HOUR, remote_id="SM1")

    with Session(fresh_database) as receipt, receipt.begin():
        hear(receipt, standing, DELIVERED, remote_id="SM1", now=clock(receipt))
        with beside(reach_horizons) as (sweeping,):
            wait_until_blocked(fresh_database)
            receipt.commit()
            sweeping.result(10)

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, reviews_of(session, standing)) == ("delivered", [])


@pytest.mark.parametrize("scope", [Scope(), Scope(lane="urgent")])
def test_a_paused_row_expires_all_the_same(fresh_database: Engine, scope: Scope) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        end = (now - MINUTE).isoformat()
        standing = make_queued(session, house, now=now - HOUR, expires_at=end)
        pause(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="why", now=now)

    assert expire_page() == 1

    with Session(fresh_database) as session:
        intent = intent_of(session, standing)
        assert (intent.state, intent.reason, outbox_of(session, standing)) == ("expired", "expired", None)


def test_a_row_parked_for_a_review_expires_and_its_question_with_it(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        standing = make_queued(session, house, now=now - HOUR, expires_at=(now - MINUTE).isoformat())
        for turn in range(6):
            claim(session, house, now=now - HOUR + turn * MINUTE)
        assert reviews_of(session, standing) == ["lost_leases"]

    assert expire_page() == 1

    with Session(fresh_database) as session:
        assert (intent_of(session, standing).state, reviews_of(session, standing)) == ("expired", [])


def test_a_row_under_a_running_lease_is_its_workers_to_expire(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        standing = make_leased(session, make_house(session, now=now), now=now, expires_at=(now + MINUTE / 60).isoformat())
        rows(session, "UPDATE intent SET expires_at = %(past)s", past=now - MINUTE)

    assert expire_page() == 0

    with Session(fresh_database) as session:
        assert outbox_of(session, standing).lease == standing.lease


def test_what_was_handed_off_does_not_expire(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session) - HOUR
        standing = make_prepared(session, make_house(session, now=now), now=now, expires_at=(now + MINUTE).isoformat())

    assert expire_page() == 0

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "prepared"


def test_an_intent_that_somebody_holds_is_expired_later_without_waiting(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        standing = make_queued(session, make_house(session, now=now), now=now - HOUR, expires_at=(now - MINUTE).isoformat())

    with Session(fresh_database) as holder, holder.begin():
        lock_books(holder, [standing.intent_id])
        with beside(expire_page) as (sweeping,):
            assert sweeping.result(5) == 0

    assert expire_page() == 1


def doubtful(session: Session, not_found: str, now: datetime, **house: Any) -> Standing:
    policy = sample(ambiguity={"not_found": not_found, "horizon": "review"})
    return make_attempt(session, make_house(session, policy=policy, now=now, **house), UNKNOWN, now=now)


def look_up_in_vain(session: Session, standing: Standing, *at: datetime) -> None:
    for now in at:
        count_not_found(session, [standing.attempt_id], now=now)


@pytest.mark.parametrize(
    ("rule", "states", "reason", "reviews"),
    [
        ("resend", ["unknown", "queued"], "retry", []),
        ("review", ["unknown"], None, ["not_found"]),
        ("close", ["unknown"], "not_found", []),
    ],
)
def test_not_found_twice_after_the_settling_time_follows_the_pinned_rule(
    session: Session, rule: str, states: list[str], reason: str | None, reviews: list[str]
) -> None:
    """It never makes the attempt failed."""
    now = clock(session)
    standing = doubtful(session, rule, now)

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert [a.state for a in attempts_of(session, standing.intent_id)] == states
    assert (intent_of(session, standing).reason, reviews_of(session, standing)) == (reason, reviews)
    assert (intent_of(session, standing).closed_at is None) == (rule != "close")


def test_the_rule_is_that_of_the_version_that_admitted(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "close", now)
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    rows(session, "UPDATE policy_version SET effective_until = %(now)s", now=now + MINUTE)

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert intent_of(session, standing).reason == "not_found"


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        (timedelta(minutes=10, seconds=14), 11 * MINUTE, 1),
        (timedelta(minutes=10, seconds=15), 11 * MINUTE, 2),
        (MINUTE, 2 * MINUTE, 0),
    ],
)
def test_not_found_before_the_carrier_has_settled_means_nothing(
    session: Session, first: timedelta, second: timedelta, counted: int
) -> None:
    """H and the settling time count from `prepared`: fifteen seconds and ten minutes."""
    now = clock(session)
    standing = doubtful(session, "resend", now)

    look_up_in_vain(session, standing, now + first, now + second)

    assert attempt_of(session, standing).not_found_count == counted


def test_not_found_once_is_not_enough(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now)

    look_up_in_vain(session, standing, now + 11 * MINUTE)

    assert len(attempts_of(session, standing.intent_id)) == 1


def test_not_found_more_than_twice_asks_no_more_than_once(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now)

    look_up_in_vain(session, standing, *(now + n * MINUTE for n in (11, 12, 13, 14)))

    assert len(attempts_of(session, standing.intent_id)) == 2


def test_not_found_is_barred_by_any_word_that_the_carrier_has_it(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now)
    hear(session, standing, SUBMITTED, now=now)

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert attempt_of(session, standing).not_found_count == 0


def test_not_found_on_a_route_whose_look_ups_prove_nothing_does_not_count(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now, carrier="kannel")

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert attempt_of(session, standing).not_found_count == 0


def test_what_was_cancelled_is_not_sent_again(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now)
    rows(session, "UPDATE intent SET close_requested_at = %(now)s, close_request = 'cancelled'", now=now)

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert (len(attempts_of(session, standing.intent_id)), intent_of(session, standing).reason) == (1, "not_found")


def test_what_has_expired_is_not_sent_again(session: Session) -> None:
    now = clock(session)
    standing = doubtful(session, "resend", now)
    rows(session, "UPDATE intent SET expires_at = %(end)s", end=now + 12 * MINUTE)

    look_up_in_vain(session, standing, now + 11 * MINUTE, now + 12 * MINUTE)

    assert (len(attempts_of(session, standing.intent_id)), intent_of(session, standing).reason) == (1, "not_found")


def test_an_attempt_in_doubt_that_we_never_prepared_is_asked_of_a_person(session: Session) -> None:
    """A restored ledger: no decision admitted it, so no pinned rule may answer."""
    now = clock(session)
    standing = make_queued(session, make_house(session, now=now), now=now)
    other = make_attempt(session, standing.house, UNKNOWN, now=now, subject="c-2", ref="m-2", sms=BEN)
    hear(session, standing, UNKNOWN, source=Source.OPERATOR, now=now)

    for minutes in (11, 12):
        count_not_found(session, [standing.attempt_id, other.attempt_id], now=now + minutes * MINUTE)

    assert reviews_of(session, standing) == ["not_found"]
