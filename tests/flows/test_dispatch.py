"""Dispatch: what is due is decided again and leased; what waits says why; nothing waits for a lock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import store_policy
from app.desk.pause import Scope, pause, resume
from app.flows.dispatch import dispatch
from app.flows.floors import lower_floors
from app.ground.config import settings
from app.ground.db import rows
from app.ledger.books import lock_books
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.words import Channel, Lane
from tests.making import (
    ANNA,
    BEN,
    NOON,
    House,
    Standing,
    attempts_of,
    beside,
    claim,
    clock,
    committing,
    count_of,
    intent_of,
    lease,
    make_event,
    make_house,
    make_leased,
    make_prepared,
    make_queued,
    make_template,
    outbox_of,
    reviews_of,
    sample,
    transitions_of,
)

LEASE = timedelta(seconds=60)
NIGHT = NOON - timedelta(hours=9)  # 03:00 in New York


def leased_ids(session: Session, house: House, **when: Any) -> list[list[Any]]:
    return [list(page.attempt_ids) for page in claim(session, house, **when)]


def make_operational(session: Session, house: House, **changes: Any) -> Standing:
    make_template(session, house.tenant_id, name="news", category="operational")
    return make_queued(session, house, template="news", **changes)


def test_a_page_of_due_rows_is_leased_under_one_number(session: Session) -> None:
    house = make_house(session)
    first, second = make_queued(session, house), make_queued(session, house, subject="c-2", ref="m-2", sms=BEN)

    (page,) = claim(session, house)

    assert sorted(page.attempt_ids) == sorted([first.attempt_id, second.attempt_id])
    assert {outbox_of(session, s).lease for s in (first, second)} == {page.lease}
    assert outbox_of(session, first).leased_until == NOON + LEASE


def test_what_is_leased_is_not_claimed_again(session: Session) -> None:
    house = make_house(session)
    make_leased(session, house)

    assert claim(session, house, now=NOON + LEASE - timedelta(seconds=1)) == []


def test_a_lease_that_ran_out_is_due_again_under_a_new_number(session: Session) -> None:
    house = make_house(session)
    standing = make_leased(session, house)

    again = lease(session, standing, now=NOON + LEASE)

    assert again.lease != standing.lease
    assert outbox_of(session, standing).lost_lease_count == 1


def test_a_row_that_lost_two_leases_is_leased_alone(session: Session) -> None:
    """One row that kills its worker must not take the others with it a third time."""
    house = make_house(session)
    poison = make_queued(session, house)
    for turn in range(2):
        lease(session, poison, now=NOON + turn * LEASE)
    others = [make_queued(session, house, now=NOON, subject=f"c-{n}", ref=f"m-{n}") for n in (2, 3)]

    pages = leased_ids(session, house, now=NOON + 2 * LEASE)

    assert sorted(pages, key=len) == [[poison.attempt_id], sorted(o.attempt_id for o in others)]


def test_a_row_that_lost_five_leases_is_parked_and_a_person_is_asked(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house)
    for turn in range(5):
        lease(session, standing, now=NOON + turn * LEASE)

    pages = claim(session, house, now=NOON + 5 * LEASE)

    row = outbox_of(session, standing)
    assert (pages, row.due_at, row.reason, row.lease) == ([], None, "lost_leases", None)
    assert reviews_of(session, standing) == ["lost_leases"]
    assert transitions_of(session, standing)[-1] == ("queued", "deferred", "lost_leases")
    assert claim(session, house, now=NOON + timedelta(hours=2)) == []


def test_a_deferral_says_why_and_until_when(session: Session) -> None:
    house = make_house(session)
    standing = make_operational(session, house, now=NIGHT)

    row, intent = outbox_of(session, standing), intent_of(session, standing)

    opening = NIGHT + timedelta(hours=5)
    assert transitions_of(session, standing) == [(None, "queued", None), ("queued", "deferred", "outside_window")]
    assert (row.due_at, row.reason, intent.next_at) == (opening, "outside_window", opening)


def test_a_deferred_row_leaves_when_its_window_opens(session: Session) -> None:
    house = make_house(session)
    standing = make_operational(session, house, now=NIGHT)

    early = claim(session, house, lane=Lane.BULK, now=NIGHT + timedelta(hours=5, microseconds=-1))
    due = claim(session, house, lane=Lane.BULK, now=NIGHT + timedelta(hours=5))

    assert early == []
    assert [list(page.attempt_ids) for page in due] == [[standing.attempt_id]]


def test_looking_again_without_a_policy_tells_nobody_anything_new(session: Session) -> None:
    """A deferral writes a transition only when reason or next time changes."""
    house = make_house(session, policy={})
    standing = make_queued(session, house)

    for minute in (1, 2, 3):
        claim(session, house, now=NOON + timedelta(minutes=minute))

    assert transitions_of(session, standing) == [(None, "queued", None), ("queued", "deferred", "no_policy")]
    assert outbox_of(session, standing).due_at == NOON + timedelta(minutes=4)
    assert count_of(session, "decision") == 1


def test_a_policy_that_comes_into_force_lets_the_waiting_go(session: Session) -> None:
    house = make_house(session, policy={})
    standing = make_queued(session, house)
    store_policy(session, tenant_id=house.tenant_id, raw=sample(), now=NOON)

    pages = leased_ids(session, house, now=NOON + timedelta(minutes=1))

    assert pages == [[standing.attempt_id]]
    decisions = rows(session, "SELECT moment, verdict FROM decision ORDER BY id")
    assert [(d.moment, d.verdict) for d in decisions] == [("acceptance", "defer"), ("dispatch", "allow")]


def test_a_decision_that_says_the_same_again_is_not_written_twice_but_noted_as_held(session: Session) -> None:
    house = make_house(session)
    standing = make_leased(session, house)

    assert count_of(session, "decision") == 1
    assert outbox_of(session, standing).held_at == NOON


def test_another_events_slot_puts_a_claimed_row_off_until_it_is_free(session: Session) -> None:
    house = make_house(session)
    make_prepared(session, house)
    other = make_queued(session, house, now=NOON, subject="c-2")

    pages = claim(session, house, now=NOON + timedelta(seconds=1))

    assert pages == []
    assert transitions_of(session, other)[-1] == ("queued", "deferred", "cooldown")
    assert outbox_of(session, other).due_at == NOON + timedelta(minutes=10)


def test_an_opt_out_since_acceptance_closes_the_row_at_its_claim(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house)
    address = address_hash(Channel.SMS, ANNA).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=address, source="keyword", cause_id=None, now=NOON)

    pages = claim(session, house)

    assert pages == []
    assert transitions_of(session, standing)[-1] == ("queued", "suppressed", "opted_out")
    assert (outbox_of(session, standing), intent_of(session, standing).holds_key) == (None, False)


def test_what_ran_out_of_time_in_a_backlog_expires_and_is_not_sent(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house, expires_at="2026-12-01T18:00:00Z")

    pages = claim(session, house, now=NOON + timedelta(hours=1))

    assert pages == []
    assert transitions_of(session, standing)[-1] == ("queued", "expired", "expired")
    assert attempts_of(session, standing.intent_id)[0].state == "expired"


def test_what_could_only_go_after_its_end_is_closed_instead_of_waiting(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house, expires_at="2026-12-01T17:05:00Z", subject="c-2")
    make_prepared(session, house, now=NOON - timedelta(seconds=1))

    claim(session, house, now=NOON + timedelta(seconds=1))

    assert transitions_of(session, standing)[-1] == ("queued", "expired", "would_expire")


@pytest.mark.parametrize("scope", [Scope(), Scope(lane="urgent"), Scope(category="transactional")])
def test_a_paused_row_is_not_claimed_until_it_is_let_go(session: Session, scope: Scope) -> None:
    house = make_house(session)
    standing = make_queued(session, house)
    pause(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="too many", now=NOON)

    held = claim(session, house)
    resume(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="done", now=NOON)

    assert held == []
    assert leased_ids(session, house) == [[standing.attempt_id]]


@pytest.mark.parametrize("scope", [Scope(lane="bulk"), Scope(category="marketing")])
def test_a_pause_holds_nothing_but_its_scope(session: Session, scope: Scope) -> None:
    house = make_house(session)
    standing = make_queued(session, house)
    pause(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="too many", now=NOON)

    assert leased_ids(session, house) == [[standing.attempt_id]]


def test_a_stopped_route_is_passed_over_while_others_go_on(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        stopped, running = make_house(session, now=now), make_house(session, now=now)
        make_queued(session, stopped, now=now)
        other = make_queued(session, running, now=now)
        name = rows(session, "SELECT name FROM route WHERE id = %(id)s", id=stopped.route_id)[0].name
        pause(session, tenant_id=stopped.tenant_id, scope=Scope(route=name), actor="ann", reason="bad", now=now)

    pages = dispatch(Lane.URGENT)

    assert [(page.route_id, list(page.attempt_ids)) for page in pages] == [(running.route_id, [other.attempt_id])]


def test_a_lane_claims_its_own_rows_only(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        make_queued(session, make_house(session, now=now), now=now)

    assert dispatch(Lane.BULK) == []
    assert len(dispatch(Lane.URGENT)) == 1


def test_no_more_is_leased_than_the_route_can_send_in_a_third_of_a_lease(fresh_database: Engine) -> None:
    """Leases must not run out in a queue: one a second for twenty seconds, in pages of a worker's window."""
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, rate=1, now=now)
        for n in range(25):
            make_event(session, house, now=now, subject=f"c-{n}", ref=f"m-{n}")

    first, second = dispatch(Lane.URGENT), dispatch(Lane.URGENT)

    assert [len(page.attempt_ids) for page in first] == [20]
    assert second == []


def test_a_large_page_is_leased_in_groups_of_a_workers_window(session: Session) -> None:
    house = make_house(session)
    window = settings().window_count
    for n in range(window + 8):
        make_event(session, house, subject=f"c-{n}", ref=f"m-{n}")

    pages = claim(session, house)

    assert [len(page.attempt_ids) for page in pages] == [window, 8]
    assert len({page.lease for page in pages}) == 2


def test_a_late_commit_below_the_floor_is_found_after_the_floors_are_lowered(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        make_queued(session, house, now=now)
    dispatch(Lane.URGENT)
    with committing(fresh_database) as session:
        late = make_queued(session, house, now=now - timedelta(minutes=5), subject="c-2", ref="m-2")

    below = dispatch(Lane.URGENT)
    lower_floors()

    assert below == []
    assert [list(page.attempt_ids) for page in dispatch(Lane.URGENT)] == [[late.attempt_id]]


def test_an_acceptance_that_commits_within_a_minute_is_not_below_the_floor(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        make_queued(session, house, now=now)
    dispatch(Lane.URGENT)
    with committing(fresh_database) as session:
        late = make_queued(session, house, now=now - timedelta(seconds=30), subject="c-2", ref="m-2")

    assert [list(page.attempt_ids) for page in dispatch(Lane.URGENT)] == [[late.attempt_id]]


def test_a_claim_passes_over_an_intent_that_somebody_holds_and_never_waits(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        held = make_queued(session, house, now=now)
        free = make_queued(session, house, now=now, subject="c-2", ref="m-2")

    with Session(fresh_database) as holder, holder.begin():
        lock_books(holder, [held.intent_id])
        with beside(lambda: dispatch(Lane.URGENT)) as (claiming,):
            pages = claiming.result(5)

    assert [list(page.attempt_ids) for page in pages] == [[free.attempt_id]]


def test_two_claims_side_by_side_share_the_rows(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        standings = [make_queued(session, house, now=now, subject=f"c-{n}", ref=f"m-{n}") for n in range(20)]

    with beside(*[lambda: dispatch(Lane.URGENT)] * 4) as claims:
        pages = [page for each in claims for page in each.result(10)]

    claimed = [i for page in pages for i in page.attempt_ids]
    assert sorted(claimed) == sorted(s.attempt_id for s in standings)
    with Session(fresh_database) as session:
        assert count_of(session, "outbox", lost_lease_count=0) == 20
