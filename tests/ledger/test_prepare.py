"""Prepare is the gate: what is admitted is prepared once, everything else goes back with its reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.pause import Scope, pause
from app.ground.db import rows
from app.ground.ids import Lease
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.prepare import Prepared
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.states import AttemptState
from policy.words import Channel, ErrorClass, Lane, Source
from tests.making import (
    ANNA,
    BEN,
    NOON,
    H,
    House,
    Standing,
    attempt_of,
    beside,
    claim,
    committing,
    hear,
    intent_of,
    lease,
    make_attempt,
    make_house,
    make_leased,
    make_prepared,
    make_queued,
    make_template,
    outbox_of,
    prepare_all,
    retry_of,
    reviews_of,
    sample,
    slots_of,
    together,
    transitions_of,
    wait_until_blocked,
)

SOON = NOON + timedelta(seconds=5)


def stop(session: Session, house: House, address: str = ANNA) -> None:
    digest = address_hash(Channel.SMS, address).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=digest, source="keyword", cause_id=None, now=SOON)


def brake(session: Session, house: House, scope: Scope) -> None:
    pause(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="why", now=SOON)


def brake_route(session: Session, house: House) -> None:
    name = rows(session, "SELECT name FROM route WHERE id = %(id)s", id=house.route_id)[0].name
    brake(session, house, Scope(route=name))


def test_what_is_prepared_is_written_down_before_anything_can_be_sent(session: Session) -> None:
    standing = make_prepared(session, make_house(session))

    attempt = attempt_of(session, standing)
    assert (attempt.state, attempt.lease, attempt.prepared_at) == ("prepared", standing.lease, NOON)
    assert attempt.decision_id == rows(session, "SELECT id FROM decision")[0].id
    assert attempt.next_check_at == NOON + H + timedelta(seconds=10)
    assert (attempt.horizon_at, outbox_of(session, standing)) == (NOON + timedelta(hours=24), None)


def test_a_handoff_carries_the_rendered_text_the_address_and_the_time_left(session: Session) -> None:
    standing = make_prepared(session, make_house(session), expires_at="2026-12-01T18:00:00Z")

    assert standing.handoff is not None
    submission = standing.handoff.submission
    assert (submission.address, submission.body) == (ANNA, "A seat opened in Spin 18:00.")
    assert (submission.valid_for, standing.handoff.deadline) == (timedelta(hours=1), 15.0)
    assert submission.attempt_key == attempt_of(session, standing).attempt_key


@pytest.mark.parametrize(("rules", "route", "asked_for"), [("1h", "7200", 3600), ("3h", "7200", 7200), (None, "7200", 7200)])
def test_a_carrier_is_asked_for_as_long_as_the_rules_want_to_know_and_it_remembers(
    session: Session, rules: str | None, route: str, asked_for: int
) -> None:
    policy = sample(horizon=rules) if rules else sample()
    house = make_house(session, policy=policy, settings={"horizon_seconds": route})
    standing = make_leased(session, house)

    prepare_all(session, standing)

    attempt = attempt_of(session, standing)
    assert (attempt.horizon_at - attempt.prepared_at).total_seconds() == asked_for


def test_a_handoff_ends_with_the_event_when_that_is_sooner_than_h(session: Session) -> None:
    standing = make_prepared(session, make_house(session), expires_at="2026-12-01T17:00:04Z")

    assert standing.handoff is not None
    assert standing.handoff.deadline == 4.0


@pytest.mark.parametrize(
    ("happen", "reason"),
    [
        (stop, "opted_out"),
        (lambda s, h: brake(s, h, Scope()), "paused"),
        (lambda s, h: brake(s, h, Scope(lane="urgent")), "paused"),
        (lambda s, h: brake(s, h, Scope(category="transactional")), "paused"),
        (brake_route, "route_stopped"),
    ],
    ids=["stop", "tenant", "lane", "category", "route"],
)
def test_what_changed_since_the_decision_puts_it_back(
    session: Session, happen: Callable[[Session, House], None], reason: str
) -> None:
    house = make_house(session)
    standing = make_leased(session, house)
    happen(session, house)

    prepared = prepare_all(session, standing, now=SOON)

    row = outbox_of(session, standing)
    assert (prepared.handoffs, prepared.put_back) == ([], {standing.attempt_id: reason})
    assert (row.lease, row.due_at, attempt_of(session, standing).state) == (None, SOON, "queued")
    assert slots_of(session, standing) == {}


@pytest.mark.parametrize("scope", [Scope(lane="bulk"), Scope(category="marketing")])
def test_a_pause_of_something_else_holds_nothing(session: Session, scope: Scope) -> None:
    house = make_house(session)
    standing = make_leased(session, house)
    brake(session, house, scope)

    assert len(prepare_all(session, standing, now=SOON).handoffs) == 1


def test_an_event_that_expires_under_its_lease_goes_back(session: Session) -> None:
    standing = make_leased(session, make_house(session), expires_at="2026-12-01T17:00:05Z")

    assert prepare_all(session, standing, now=SOON).put_back == {standing.attempt_id: "expired"}


def test_a_decision_whose_window_closes_under_its_lease_goes_back(session: Session) -> None:
    """21:00 in New York is the end of the window, exclusive."""
    house = make_house(session)
    make_template(session, house.tenant_id, name="news", category="operational")
    evening = NOON + timedelta(hours=9, seconds=-5)
    standing = make_queued(session, house, template="news", now=evening)
    (page,) = claim(session, house, lane=Lane.BULK, now=evening)
    leased = replace(standing, lease=page.lease)

    prepared = prepare_all(session, leased, now=evening + timedelta(seconds=5))

    assert prepared.put_back == {standing.attempt_id: "outside_window"}


def test_an_opt_out_after_the_decision_is_closed_when_it_is_decided_again(session: Session) -> None:
    house = make_house(session)
    standing = make_leased(session, house)
    stop(session, house)
    prepare_all(session, standing, now=SOON)

    claim(session, house, now=SOON)

    assert transitions_of(session, standing)[-1] == ("queued", "suppressed", "opted_out")
    assert intent_of(session, standing).closed_at == SOON


def test_an_opt_out_from_another_address_holds_nobody_else(session: Session) -> None:
    house = make_house(session)
    standing = make_leased(session, house)
    stop(session, house, BEN)

    assert len(prepare_all(session, standing, now=SOON).handoffs) == 1


@pytest.mark.parametrize("number", [0, 999_999])
def test_a_lease_that_is_not_current_does_nothing(session: Session, number: int) -> None:
    standing = make_leased(session, make_house(session))

    prepared = prepare_all(session, replace(standing, lease=Lease(number)), now=SOON)

    assert prepared == Prepared()
    assert outbox_of(session, standing).lease == standing.lease


def test_an_older_lease_does_nothing_after_a_newer_one(session: Session) -> None:
    old = make_leased(session, make_house(session))
    later = NOON + timedelta(seconds=60)
    new = lease(session, old, now=later)

    assert prepare_all(session, old, now=later) == Prepared()
    assert len(prepare_all(session, new, now=later).handoffs) == 1


def test_a_lease_that_ran_out_does_nothing_although_nobody_took_the_row(session: Session) -> None:
    standing = make_leased(session, make_house(session))

    assert prepare_all(session, standing, now=NOON + timedelta(seconds=60)) == Prepared()


def test_of_two_events_for_one_person_in_one_page_the_second_waits(session: Session) -> None:
    house = make_house(session)
    first, second = make_queued(session, house), make_queued(session, house, subject="c-2")
    (page,) = claim(session, house)
    leased = [replace(s, lease=page.lease) for s in sorted([first, second], key=lambda s: s.attempt_id)]

    prepared = prepare_all(session, *leased, now=SOON)

    assert [h.attempt_id for h in prepared.handoffs] == [leased[0].attempt_id]
    assert prepared.put_back == {leased[1].attempt_id: "cooldown"}
    assert slots_of(session, first)["transactional"]["attempt_id"] == str(leased[0].attempt_id)


def test_two_refs_with_one_address_are_one_person_to_the_gate(session: Session) -> None:
    house = make_house(session)
    first, second = make_queued(session, house), make_queued(session, house, ref="m-2")
    (page,) = claim(session, house)

    prepared = prepare_all(session, replace(first, lease=page.lease), replace(second, lease=page.lease), now=SOON)

    assert (len(prepared.handoffs), list(prepared.put_back.values())) == (1, ["cooldown"])


def test_categories_do_not_wait_for_each_other(session: Session) -> None:
    house = make_house(session)
    make_template(session, house.tenant_id, name="news", category="operational")
    make_prepared(session, house)
    other = make_queued(session, house, template="news", subject="c-2")
    (page,) = claim(session, house, lane=Lane.BULK)

    assert len(prepare_all(session, replace(other, lease=page.lease), now=SOON).handoffs) == 1


def test_a_retry_of_the_same_business_key_is_not_held_by_its_own_slot(session: Session) -> None:
    house = make_house(session)
    failed = make_attempt(session, house, AttemptState.FAILED, remote_id="SM1", error_class=ErrorClass.TRANSIENT)
    later = NOON + timedelta(minutes=5)
    retry = lease(session, retry_of(session, failed), now=later)

    prepared = prepare_all(session, retry, now=later)

    assert len(prepared.handoffs) == 1
    assert slots_of(session, failed)["transactional"]["attempt_id"] == str(retry.attempt_id)


def test_the_gate_lets_the_next_event_in_when_the_cooldown_ends(session: Session) -> None:
    house = make_house(session)
    make_prepared(session, house)
    other = make_queued(session, house, subject="c-2")
    end = NOON + timedelta(minutes=10)

    claim(session, house, now=SOON)
    waiting = outbox_of(session, other).due_at
    leased = lease(session, other, now=end)

    assert waiting == end
    assert len(prepare_all(session, leased, now=end).handoffs) == 1


def test_a_text_that_is_not_the_accepted_one_is_parked_alone(session: Session) -> None:
    house = make_house(session)
    broken, whole = make_queued(session, house), make_queued(session, house, subject="c-2", ref="m-2", sms=BEN)
    rows(session, "UPDATE attempt SET body_hash = '\\x00' WHERE id = %(id)s", id=broken.attempt_id)
    (page,) = claim(session, house)

    prepared = prepare_all(session, replace(broken, lease=page.lease), replace(whole, lease=page.lease), now=SOON)

    row = outbox_of(session, broken)
    assert (prepared.parked, [h.attempt_id for h in prepared.handoffs]) == ({broken.attempt_id}, [whole.attempt_id])
    assert (row.due_at, row.lease, row.reason) == (None, None, "artifact_mismatch")
    assert reviews_of(session, broken) == ["artifact_mismatch"]
    assert (attempt_of(session, broken).state, slots_of(session, broken)) == ("queued", {})


def test_the_row_of_an_erased_person_is_parked_alone(session: Session) -> None:
    house = make_house(session)
    erased, other = make_queued(session, house), make_queued(session, house, subject="c-2", ref="m-2", sms=BEN)
    (page,) = claim(session, house)
    rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = %(now)s WHERE name = 'm-1'", now=NOON)

    prepared = prepare_all(session, replace(erased, lease=page.lease), replace(other, lease=page.lease), now=SOON)

    assert (prepared.parked, len(prepared.handoffs)) == ({erased.attempt_id}, 1)


def test_a_cancelled_row_is_not_prepared(session: Session) -> None:
    standing = make_leased(session, make_house(session))
    cancel_intents(session, lock_books(session, [standing.intent_id]), [standing.intent_id], cause_id=None, now=SOON)

    assert prepare_all(session, standing, now=SOON) == Prepared()
    assert attempt_of(session, standing).state == "cancelled"


def test_a_certain_non_handoff_gives_the_slot_back_and_an_unknown_keeps_it(session: Session) -> None:
    house = make_house(session)
    freed = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.NOT_HANDED_OFF)
    kept = make_attempt(session, house, AttemptState.UNKNOWN, subject="c-2", ref="m-2", sms=BEN)

    assert slots_of(session, freed) == {}
    assert slots_of(session, kept)["transactional"]["attempt_id"] == str(kept.attempt_id)


def test_a_slot_that_another_attempt_has_by_now_is_not_given_back(session: Session) -> None:
    house = make_house(session)
    first = make_attempt(session, house, AttemptState.UNKNOWN)
    end = NOON + timedelta(minutes=10)
    second = make_prepared(session, house, subject="c-2", now=end)

    hear(session, first, AttemptState.FAILED, source=Source.ANSWER, error_class=ErrorClass.TRANSIENT, now=end)

    assert slots_of(session, first)["transactional"]["attempt_id"] == str(second.attempt_id)


def test_a_longer_cooldown_of_the_version_that_admits_holds_longer(session: Session) -> None:
    house = make_house(session, policy=sample(cooldown="2h"))
    standing = make_prepared(session, house)

    assert slots_of(session, standing)["transactional"]["until"] == (NOON + timedelta(hours=2)).isoformat()


def committed(engine: Engine) -> Standing:
    """Lease an attempt for somebody whose gate row is there from an earlier handoff: only its lock serialises then."""
    with committing(engine) as session:
        house = make_house(session)
        make_prepared(session, house, subject="c-0", now=NOON - timedelta(hours=1))
        return make_leased(session, house)


def prepare_alone(engine: Engine, standing: Standing) -> Prepared:
    with committing(engine) as session:
        return prepare_all(session, standing, now=SOON)


def test_of_two_workers_with_one_page_exactly_one_prepares_it(fresh_database: Engine) -> None:
    """The broker delivers a task twice: one of the two takes nothing."""
    standing = committed(fresh_database)

    results = together(*[lambda: prepare_alone(fresh_database, standing)] * 4)

    assert sorted(len(prepared.handoffs) for prepared in results) == [0, 0, 0, 1]
    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "prepared"


def test_two_events_of_one_person_side_by_side_contact_them_once(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
        standings = [make_queued(session, house, subject=f"c-{n}") for n in range(4)]
        leased = [lease_alone(session, s) for s in standings]

    results = together(*(lambda s=s: prepare_alone(fresh_database, s) for s in leased))

    assert sum(len(prepared.handoffs) for prepared in results) == 1
    assert sum(len(prepared.put_back) for prepared in results) == 3


def lease_alone(session: Session, standing: Standing) -> Standing:
    number = rows(session, "SELECT nextval('lease') AS n")[0].n
    rows(
        session,
        "UPDATE outbox SET lease = %(lease)s, leased_until = %(until)s WHERE attempt_id = %(id)s",
        lease=number,
        until=NOON + timedelta(seconds=60),
        id=standing.attempt_id,
    )
    return replace(standing, lease=Lease(number))


def test_a_gate_is_read_under_its_lock(fresh_database: Engine) -> None:
    """Read before the lock, the slot that another worker is about to take would be overlooked."""
    standing = committed(fresh_database)
    take = "UPDATE gate SET slots = jsonb_set(slots, '{transactional}', %(slot)s)"
    slot = {"business_key": "other", "attempt_id": "other", "until": (SOON + timedelta(hours=1)).isoformat()}

    with Session(fresh_database) as other, other.begin():
        rows(other, "SELECT 1 FROM gate FOR UPDATE")
        with beside(lambda: prepare_alone(fresh_database, standing)) as (preparing,):
            wait_until_blocked(fresh_database)
            rows(other, take, slot=Jsonb(slot))
            other.commit()
            prepared = preparing.result(10)

    assert prepared.put_back == {standing.attempt_id: "cooldown"}


def test_a_stop_that_is_being_committed_is_waited_for(fresh_database: Engine) -> None:
    """STOP and handoff are in one order: the gate row's."""
    standing = committed(fresh_database)

    with Session(fresh_database) as stopping, stopping.begin():
        stop(stopping, standing.house)
        with beside(lambda: prepare_alone(fresh_database, standing)) as (preparing,):
            wait_until_blocked(fresh_database)
            stopping.commit()
            prepared = preparing.result(10)

    assert prepared.put_back == {standing.attempt_id: "opted_out"}


def test_a_stop_waits_for_a_handoff_that_is_being_prepared(fresh_database: Engine) -> None:
    standing = committed(fresh_database)

    def stop_alone() -> None:
        with committing(fresh_database) as session:
            stop(session, standing.house)

    with Session(fresh_database) as preparing, preparing.begin():
        prepared = prepare_all(preparing, standing, now=SOON)
        with beside(stop_alone) as (stopping,):
            wait_until_blocked(fresh_database)
            preparing.commit()
            stopping.result(10)

    assert len(prepared.handoffs) == 1
    with Session(fresh_database) as session:
        assert rows(session, "SELECT suppressed_at FROM gate")[0].suppressed_at == SOON
