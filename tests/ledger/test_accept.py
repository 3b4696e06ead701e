"""Acceptance: one key, one event; one intent per business key and channel; and nothing written for what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import store_policy
from app.flows.dispatch import Page
from app.ground.db import Raced, rows, transact
from app.ledger.accept import Refused, accept
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.request import Problem, read_request
from app.ledger.view import EventView
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.states import AttemptState, PublicState
from policy.words import Channel
from tests.making import (
    ANNA,
    BEN,
    NOON,
    House,
    accept_all,
    ask,
    attempts_of,
    beside,
    claim,
    committing,
    count_of,
    make_event,
    make_house,
    make_queued,
    make_request,
    make_template,
    outbox_of,
    sample,
    together,
    transitions_of,
    wait_until_blocked,
)

BOOKS = ("event", "intent", "decision", "attempt", "transition", "outbox", "contact", "person_key", "feed_pending", "joining")


def one(result: EventView | Refused) -> EventView:
    assert isinstance(result, EventView), result
    return result


def codes(result: EventView | Refused) -> list[str]:
    assert isinstance(result, Refused), result
    return [problem.code for problem in result.problems]


def books(session: Session) -> dict[str, int]:
    return {table: count_of(session, table) for table in BOOKS}


def test_an_accepted_event_is_queued_with_everything_that_its_dispatch_needs(session: Session) -> None:
    standing = make_queued(session, make_house(session))

    assert transitions_of(session, standing) == [(None, "queued", None)]
    assert outbox_of(session, standing).due_at == NOON
    assert [a.state for a in attempts_of(session, standing.intent_id)] == ["queued"]


def test_the_same_request_again_is_the_same_event_and_writes_nothing(session: Session) -> None:
    house = make_house(session)
    first = make_event(session, house)
    before = books(session)

    again = one(accept_all(session, house, ask())[0])

    assert (again.event_id, again.duplicate, again.intents) == (first.event_id, True, first.intents)
    assert books(session) == before


def test_the_order_of_fields_is_no_other_content(session: Session) -> None:
    house = make_house(session)
    make_event(session, house)

    again = one(accept_all(session, house, dict(reversed(ask().items())))[0])

    assert again.duplicate


def test_a_key_used_with_other_content_is_refused_and_writes_nothing(session: Session) -> None:
    house = make_house(session)
    make_event(session, house, key="k-1")
    before = books(session)

    result = accept_all(session, house, ask(key="k-1", subject="c-2"))[0]

    assert codes(result) == ["key_reused"]
    assert books(session) == before


def test_a_repeated_request_is_a_duplicate_also_after_its_event_expired(session: Session) -> None:
    """The key is compared before every check that time can change."""
    house = make_house(session)
    request = ask(key="k-1", expires_at="2026-12-01T18:00:00Z")
    first = one(accept_all(session, house, request)[0])

    again = one(accept_all(session, house, request, now=NOON + timedelta(days=3))[0])

    assert (again.event_id, again.duplicate) == (first.event_id, True)


def test_a_repeated_request_is_a_duplicate_also_after_a_newer_template_needs_more(session: Session) -> None:
    house = make_house(session)
    first = make_event(session, house)
    make_template(session, house.tenant_id, category="marketing", body="New: {{ class }}")

    again = one(accept_all(session, house, ask())[0])

    assert (again.event_id, again.template, again.duplicate) == (first.event_id, "class-opening@1", True)


def test_other_content_under_a_key_is_told_before_anything_else_that_is_wrong(session: Session) -> None:
    house = make_house(session)
    make_event(session, house, key="k-1")

    result = accept_all(session, house, ask(key="k-1", template="gone", expires_at="2020-01-01T00:00:00Z"))[0]

    assert codes(result) == ["key_reused"]


def test_given_and_derived_keys_are_separate_namespaces(session: Session) -> None:
    house = make_house(session)
    derived = make_event(session, house)

    given = make_event(session, house, key=derived.key, subject="c-2")

    assert (given.key, given.duplicate, given.event_id != derived.event_id) == (derived.key, False, True)


def test_a_slash_in_one_part_of_a_business_key_does_not_reach_into_the_next(session: Session) -> None:
    house = make_house(session)

    results = accept_all(session, house, ask(type="a/b", subject="c"), ask(type="a", subject="b/c"))

    assert [one(r).key for r in results] == ["a%2Fb/c/m-1", "a/b%2Fc/m-1"]
    assert [one(r).intents[0].joined for r in results] == [False, False]


def test_a_later_event_on_a_held_business_key_joins_and_contacts_nobody(session: Session) -> None:
    house = make_house(session)
    first = make_event(session, house)

    second = make_event(session, house, key="k-2")

    assert (second.intents[0].intent_id, second.intents[0].joined) == (first.intents[0].intent_id, True)
    assert (count_of(session, "intent"), count_of(session, "joining"), count_of(session, "outbox")) == (1, 1, 1)


def test_a_batch_is_answered_in_order_each_on_its_own(session: Session) -> None:
    house = make_house(session)

    new, repeated, other, joined, bad, last = accept_all(
        session,
        house,
        ask(key="k-1"),
        ask(key="k-1"),
        ask(key="k-1", data={"class": "Yoga"}),
        ask(key="k-2"),
        ask(subject="c-3", template="gone"),
        ask(subject="c-4"),
    )

    assert (one(repeated).duplicate, one(repeated).event_id) == (True, one(new).event_id)
    assert codes(other) == ["key_reused"]
    assert (one(joined).intents[0].joined, one(joined).intents[0].intent_id) == (True, one(new).intents[0].intent_id)
    assert codes(bad) == ["unknown_template"]
    assert not one(last).intents[0].joined
    assert (count_of(session, "event"), count_of(session, "intent")) == (3, 2)


def test_a_batch_of_a_thousand_is_accepted_whole(session: Session) -> None:
    house = make_house(session)

    results = accept_all(session, house, *(ask(subject=f"c-{n}", ref=f"m-{n % 100}") for n in range(1000)))

    assert len({one(r).event_id for r in results}) == 1000
    assert (count_of(session, "outbox"), count_of(session, "person_key"), count_of(session, "contact")) == (1000, 100, 100)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"template": "gone"}, "unknown_template"),
        ({"template": "class-opening@7"}, "unknown_template"),
        ({"category": "marketing"}, "category_mismatch"),
        ({"data": {}}, "missing_variable"),
        ({"expires_at": "2026-12-01T16:59:59Z"}, "already_expired"),
        ({"not_before": "2026-12-01T19:00:00Z", "expires_at": "2026-12-01T18:00:00Z"}, "already_expired"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(session: Session, changes: dict[str, Any], code: str) -> None:
    house = make_house(session)
    before = books(session)

    result = accept_all(session, house, ask(**changes))[0]

    assert codes(result) == [code]
    assert books(session) == before


def test_codes_are_not_accepted_yet(session: Session) -> None:
    house = make_house(session)
    make_template(session, house.tenant_id, name="code", category="otp")

    assert codes(accept_all(session, house, ask(template="code"))[0]) == ["category_closed"]


def test_a_text_that_comes_out_empty_is_refused(session: Session) -> None:
    house = make_house(session)
    make_template(session, house.tenant_id, name="hollow", body="{{ class }}")

    assert codes(accept_all(session, house, ask(template="hollow", data={"class": " "}))[0]) == ["empty_text"]


def test_an_opted_out_person_is_told_apart_at_acceptance_and_frees_the_key(session: Session) -> None:
    house = make_house(session)
    address = address_hash(Channel.SMS, ANNA).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=address, source="api", cause_id=None, now=NOON)

    standing = make_queued(session, house)
    later = make_event(session, house, key="k-2")

    assert transitions_of(session, standing) == [(None, "suppressed", "opted_out")]
    assert outbox_of(session, standing) is None
    assert [a.state for a in attempts_of(session, standing.intent_id)] == ["suppressed"]
    assert not later.intents[0].joined


def test_without_a_policy_an_event_is_kept_and_waits(session: Session) -> None:
    """No policy never allows, and never drops."""
    standing = make_queued(session, make_house(session, policy={}))

    assert transitions_of(session, standing) == [(None, "queued", None), ("queued", "deferred", "no_policy")]
    assert outbox_of(session, standing).due_at == NOON + timedelta(seconds=60)


def test_a_blocked_country_is_not_contacted(session: Session) -> None:
    policy = sample() | {"countries": {"allowed": ["GB"], "blocked": ["US"]}}

    standing = make_queued(session, make_house(session, policy=policy))

    assert transitions_of(session, standing) == [(None, "suppressed", "country_blocked")]


def test_without_a_route_for_the_country_nobody_is_contacted(session: Session) -> None:
    house = make_house(session)
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    rows(session, "UPDATE route SET countries = ARRAY['FR']")

    standing = make_queued(session, house)

    assert transitions_of(session, standing) == [(None, "suppressed", "no_route")]


@pytest.mark.parametrize(
    ("asked", "ends_at"),
    [
        (None, NOON + timedelta(hours=24)),
        ("2026-12-01T18:00:00Z", NOON + timedelta(hours=1)),
        ("2026-12-09T18:00:00Z", NOON + timedelta(hours=24)),
    ],
)
def test_an_event_ends_with_its_own_time_or_its_category_whichever_is_sooner(
    session: Session, asked: str | None, ends_at: object
) -> None:
    view = make_event(session, make_house(session), expires_at=asked)

    assert view.expires_at == ends_at


def test_an_event_that_may_only_go_out_after_its_end_is_closed_now(session: Session) -> None:
    standing = make_queued(session, make_house(session), not_before="2026-12-03T18:00:00Z")

    assert transitions_of(session, standing) == [(None, "expired", "would_expire")]


def test_an_erased_person_is_refused(session: Session) -> None:
    house = make_house(session)
    make_event(session, house)
    rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = %(now)s", now=NOON)

    result = accept_all(session, house, ask(subject="c-2"))[0]

    assert codes(result) == ["recipient_erased"]


def test_no_personal_value_stands_in_clear_in_any_row_of_the_books(session: Session) -> None:
    """Addresses and template data are in the vault and nowhere else."""
    make_event(session, make_house(session), data={"class": "Zebra-Pilates"})

    found = [
        table
        for table in BOOKS
        for row in rows(session, f"SELECT to_jsonb(t)::text AS said FROM {table} t")
        if "2015550123" in row.said or "Zebra" in row.said
    ]

    assert found == []


def test_two_policies_in_force_at_once_cannot_be_published(session: Session) -> None:
    house = make_house(session)

    with pytest.raises(Exception, match="is in force at some instant"):
        store_policy(session, tenant_id=house.tenant_id, raw=sample() | {"version": "other"}, now=NOON)


def test_a_business_key_that_no_index_could_hold_is_refused_by_the_reader() -> None:
    """Percent-encoding makes twelve characters of one: past 2,700 the index would refuse the row with a fault of ours."""
    wide = "".join(chr(0x1F300 + n) for n in range(200))

    problems = read_request(ask(type=wide, subject=wide[::-1]))

    assert isinstance(problems, list)
    assert [(p.code, p.pointer) for p in problems] == [("invalid_field", "/subject")]


def test_a_number_that_is_none_is_refused_by_the_reader() -> None:
    problems = read_request(ask(data={"class": float("inf")}))

    assert problems == [Problem("invalid_field", "must be a finite number", "/data/class")]


def committed_house(engine: Engine) -> House:
    with committing(engine) as session:
        return make_house(session)


def post(house: House, **changes: Any) -> EventView:
    results = transact(
        lambda tx: accept(tx.session, [make_request(**changes)], tenant_id=house.tenant_id, source="api", now=tx.now)
    )
    return one(results[0])


def test_of_two_racing_requests_one_writes_and_the_other_answers_with_it(fresh_database: Engine) -> None:
    house = committed_house(fresh_database)

    first, second = together(lambda: post(house, key="k-1"), lambda: post(house, key="k-1"))

    assert first.event_id == second.event_id
    assert sorted([first.duplicate, second.duplicate]) == [False, True]
    with Session(fresh_database) as session:
        assert (count_of(session, "event"), count_of(session, "intent")) == (1, 1)


def test_racing_events_of_a_new_person_share_one_vault_key(fresh_database: Engine) -> None:
    """The loser encrypts again under the winner's key, so both events open."""
    house = committed_house(fresh_database)

    views = together(*(lambda n=n: post(house, subject=f"c-{n}") for n in range(6)))

    with Session(fresh_database) as session:
        assert (count_of(session, "person_key"), count_of(session, "contact"), count_of(session, "event")) == (1, 1, 6)
        pages: list[Page] = claim(session, house, now=views[-1].accepted_at + timedelta(seconds=1))
        assert sum(len(page.attempt_ids) for page in pages) == 6


def test_racing_events_on_one_business_key_open_one_intent(fresh_database: Engine) -> None:
    house = committed_house(fresh_database)

    views = together(*(lambda n=n: post(house, key=f"k-{n}") for n in range(6)))

    assert len({v.intents[0].intent_id for v in views}) == 1
    assert sorted(v.intents[0].joined for v in views) == [False] + [True] * 5


def test_an_event_that_joins_while_the_intent_closes_waits_and_gets_its_own(fresh_database: Engine) -> None:
    """It must not slip past a close that then finds nobody to promote."""
    with committing(fresh_database) as session:
        house = make_house(session)
        first = make_queued(session, house)

    with committing(fresh_database) as closing:
        cancel_intents(closing, lock_books(closing, [first.intent_id]), [first.intent_id], cause_id=None, now=NOON)
        with beside(lambda: post(house, key="k-2")) as (joining,):
            wait_until_blocked(fresh_database)
            closing.commit()
            second = joining.result(10)

    assert (second.intents[0].joined, second.intents[0].state) == (False, PublicState.QUEUED)
    assert second.intents[0].intent_id != first.intent_id


def test_a_close_waits_for_an_event_that_is_joining_and_promotes_it(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
        first = make_queued(session, house)

    def cancel() -> None:
        with committing(fresh_database) as closing:
            cancel_intents(closing, lock_books(closing, [first.intent_id]), [first.intent_id], cause_id=None, now=NOON)

    with Session(fresh_database) as joining, joining.begin():
        second = one(accept_all(joining, house, ask(key="k-2"))[0])
        assert second.intents[0].joined
        with beside(cancel) as (closing,):
            wait_until_blocked(fresh_database)
            joining.commit()
            closing.result(10)

    with Session(fresh_database) as session:
        own = rows(session, "SELECT state FROM intent WHERE event_id = %(id)s", id=second.event_id)
        assert [row.state for row in own] == ["queued"]


def test_whoever_finds_the_holder_gone_says_that_it_raced(fresh_database: Engine) -> None:
    """Raced sends the whole of it round again, from its reads."""
    with committing(fresh_database) as session:
        house = make_house(session)
        first = make_queued(session, house)

    def join() -> None:
        with Session(fresh_database) as session, session.begin():
            accept_all(session, house, ask(key="k-2"))

    with Session(fresh_database) as closing, closing.begin():
        cancel_intents(closing, lock_books(closing, [first.intent_id]), [first.intent_id], cause_id=None, now=NOON)
        with beside(join) as (joining,):
            wait_until_blocked(fresh_database)
            closing.commit()
            with pytest.raises(Raced):
                joining.result(10)


def test_the_state_of_a_joined_event_is_that_of_the_intent_it_joined(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    make_event(session, house, key="k-2", ref="m-1", sms=BEN)
    cancel_intents(session, lock_books(session, [first.intent_id]), [first.intent_id], cause_id=None, now=NOON)

    promoted = one(accept_all(session, house, ask(key="k-2", sms=BEN))[0])

    assert (promoted.duplicate, promoted.intents[0].joined, promoted.intents[0].state) == (True, False, PublicState.QUEUED)
    assert AttemptState.QUEUED in {a.state for a in attempts_of(session, promoted.intents[0].intent_id)}
