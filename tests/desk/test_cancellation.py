"""Cancelling an occasion beside those who accept, hand off and hear: each is before it or after it, never both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.cancellation import CancellationView, begin_cancellation, cancel_occasion, occasion_of, read_cancellation
from app.ground.db import rows, transact
from app.ledger import cancellation as ledger
from app.ledger.audit import audit
from policy.states import AttemptState
from policy.words import ErrorClass, Source
from tests.making import (
    House,
    Standing,
    accept_all,
    ask,
    attempt_of,
    beside,
    clock,
    committing,
    hear,
    intent_of,
    make_attempt,
    make_event,
    make_house,
    make_leased,
    make_prepared,
    make_queued,
    outbox_of,
    prepare_all,
    wait_until_blocked,
)

NUMBER: Final = "+1201555{:04}"


def furnish(engine: Engine) -> House:
    with committing(engine) as session:
        return make_house(session, now=clock(session))


def cancel(house: House, *excepted: str, key: str | None = None) -> CancellationView:
    """Call the occasion of `ask` off, as the API does."""
    asked = occasion_of("class.opening", "c-1", excepted)
    begun = transact(
        lambda tx: begin_cancellation(
            tx.session, tenant_id=house.tenant_id, asked=asked, reason="seat filled", actor="ann", key=key, now=tx.now
        )
    )
    cancel_occasion(begun)
    return transact(
        lambda tx: read_cancellation(tx.session, tenant_id=house.tenant_id, cancellation_id=begun.id, after=None, limit=100)
    )


def person(n: int) -> dict[str, str]:
    return {"ref": f"m-{n}", "sms": NUMBER.format(100 + n)}


def counts(view: CancellationView) -> dict[str, int]:
    assert view.counts is not None
    return {found: n for found, n in view.counts.items() if n}


def state_of(engine: Engine, standing: Standing) -> tuple[str, str | None]:
    with Session(engine) as session:
        return attempt_of(session, standing).state, intent_of(session, standing).close_request


def breaches(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return [breach.code for breach in audit(session, since=None, full=True, now=clock(session))]


def test_an_acceptance_that_is_first_is_waited_for_and_cancelled(fresh_database: Engine) -> None:
    house = furnish(fresh_database)

    with Session(fresh_database) as accepting, accepting.begin():
        standing = make_queued(accepting, house, now=clock(accepting))
        with beside(partial(cancel, house)) as (cancelling,):
            wait_until_blocked(fresh_database)
            accepting.commit()
            view = cancelling.result(20)

    assert (counts(view), state_of(fresh_database, standing)[0]) == ({"cancelled": 1}, "cancelled")


def test_an_acceptance_that_comes_while_the_cut_is_open_waits_and_is_contacted(fresh_database: Engine) -> None:
    house = furnish(fresh_database)

    def accept_it() -> Standing:
        with committing(fresh_database) as session:
            return make_queued(session, house, now=clock(session))

    standing, view = _beside_an_open_cut(fresh_database, house, accept_it)

    assert (counts(view), state_of(fresh_database, standing)[0]) == ({}, "queued")
    assert breaches(fresh_database) == []


def test_of_what_is_accepted_for_another_occasion_nothing_waits(fresh_database: Engine) -> None:
    """A page names many occasions; each has a lock of its own, unless two share a number."""
    house = furnish(fresh_database)
    begun = _begun(house)

    with Session(fresh_database) as cutting, cutting.begin():
        ledger.cut(cutting, _row(cutting, begun), now=clock(cutting))
        with committing(fresh_database) as session:
            make_event(session, house, subject="another", now=clock(session))

    with Session(fresh_database) as session:
        assert rows(session, "SELECT count(*) AS n FROM event")[0].n == 1


def test_a_page_of_many_occasions_is_accepted_in_one_order_with_its_reverse(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    subjects = [f"c-{n}" for n in range(50)]

    def accept_them(order: list[str]) -> int:
        with committing(fresh_database) as session:
            raws = [ask(subject=subject, **person(n)) for n, subject in enumerate(order)]
            return len(accept_all(session, house, *raws, now=clock(session)))

    with beside(partial(accept_them, subjects), partial(cancel, house)) as futures:
        assert futures[0].result(20) == 50
        futures[1].result(20)


def test_a_handoff_that_is_first_is_named_and_goes_on(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    standing = _leased(fresh_database, house)

    with Session(fresh_database) as preparing, preparing.begin():
        assert len(prepare_all(preparing, standing, now=clock(preparing)).handoffs) == 1
        with beside(partial(cancel, house)) as (cancelling,):
            wait_until_blocked(fresh_database)
            preparing.commit()
            view = cancelling.result(20)

    assert (counts(view), [h.event_id for h in view.handed_off]) == ({"handed_off": 1}, [standing.event_id])
    assert state_of(fresh_database, standing) == ("prepared", "cancelled")


def test_a_handoff_that_is_second_finds_nothing_to_prepare(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    standing = _leased(fresh_database, house)

    def prepare_it() -> int:
        with committing(fresh_database) as session:
            return len(prepare_all(session, standing, now=clock(session)).handoffs)

    prepared, view = _beside_an_open_cut(fresh_database, house, prepare_it)

    assert (prepared, counts(view)) == (0, {"cancelled": 1})
    assert state_of(fresh_database, standing)[0] == "cancelled"


def test_an_event_that_waits_to_get_the_key_never_gets_it(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        now = clock(session)
        first = make_queued(session, house, now=now)
        make_event(session, house, key="k-2", now=now)

    view = cancel(house)

    assert counts(view) == {"cancelled": 1, "joined": 1}
    assert _open(fresh_database) == []
    assert state_of(fresh_database, first)[0] == "cancelled"
    assert breaches(fresh_database) == []


def test_an_event_that_joined_what_was_handed_off_does_not_follow_when_that_never_left(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        now = clock(session)
        standing = make_prepared(session, house, now=now)
        make_event(session, house, key="k-2", now=now)

    view = cancel(house)
    with committing(fresh_database) as session:
        hear(
            session,
            standing,
            AttemptState.FAILED,
            source=Source.ANSWER,
            error_class=ErrorClass.NOT_HANDED_OFF,
            now=clock(session),
        )

    assert counts(view) == {"handed_off": 1, "joined": 1}
    assert _open(fresh_database) == []
    assert breaches(fresh_database) == []


def test_an_event_that_joins_after_the_cut_follows_when_that_never_left(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        standing = make_prepared(session, house, now=clock(session))
    cancel(house)

    with committing(fresh_database) as session:
        late = make_event(session, house, key="k-2", now=clock(session))
    with committing(fresh_database) as session:
        hear(
            session,
            standing,
            AttemptState.FAILED,
            source=Source.ANSWER,
            error_class=ErrorClass.NOT_HANDED_OFF,
            now=clock(session),
        )

    assert _open(fresh_database) == [late.event_id]


def test_whoever_is_promoted_while_the_cut_looks_is_cancelled_as_well(fresh_database: Engine) -> None:
    """What never left closes, and hands its key on, in a transaction that the cut has to wait for."""
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        standing = make_prepared(session, house, now=clock(session))
    begun = _begun(house)
    with committing(fresh_database) as session:
        ledger.close_page(session, _row(session, begun), [standing.intent_id], now=clock(session))
    with committing(fresh_database) as session:
        make_event(session, house, key="k-2", now=clock(session))  # after its page, before the cut

    with Session(fresh_database) as hearing, hearing.begin():
        hear(
            hearing,
            standing,
            AttemptState.FAILED,
            source=Source.ANSWER,
            error_class=ErrorClass.NOT_HANDED_OFF,
            now=clock(hearing),
        )
        with beside(partial(_cut, fresh_database, begun)) as (cutting,):
            wait_until_blocked(fresh_database)
            hearing.commit()
            cutting.result(20)

    assert _open(fresh_database) == []
    assert breaches(fresh_database) == []


def test_one_that_was_broken_off_goes_on_under_its_key(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        first = make_queued(session, house, now=clock(session), **person(1))
        make_queued(session, house, now=clock(session), **person(2))
    begun = _begun(house, key="seat-1")
    with committing(fresh_database) as session:
        ledger.close_page(session, _row(session, begun), [first.intent_id], now=clock(session))

    view = cancel(house, key="seat-1")

    assert (view.id, counts(view)) == (begun, {"cancelled": 2})


def test_two_at_once_under_one_key_are_one(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        for n in range(20):
            make_queued(session, house, now=clock(session), **person(n))

    with beside(partial(cancel, house, key="seat-1"), partial(cancel, house, key="seat-1")) as futures:
        one, other = (future.result(30) for future in futures)

    assert (one, counts(one)) == (other, {"cancelled": 20})
    assert breaches(fresh_database) == []


@pytest.mark.parametrize("state", [AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.DELIVERED])
def test_who_was_told_is_named_whatever_became_of_it(fresh_database: Engine, state: AttemptState) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        standing = make_attempt(session, house, state, remote_id="SM1", now=clock(session))

    view = cancel(house)

    assert counts(view) == {"handed_off": 1}
    assert [(h.event_id, h.recipient_ref) for h in view.handed_off] == [(standing.event_id, "m-1")]


def test_what_was_handed_off_is_not_polled_any_more_and_gets_no_other_attempt(fresh_database: Engine) -> None:
    house = furnish(fresh_database)
    with committing(fresh_database) as session:
        standing = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1", now=clock(session))

    cancel(house)

    with committing(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert attempt.next_check_at == attempt.horizon_at
        hear(session, standing, AttemptState.FAILED, error_class=ErrorClass.TRANSIENT, now=clock(session))
        assert (outbox_of(session, standing), intent_of(session, standing).reason) == (None, "transient")


def _beside_an_open_cut(engine: Engine, house: House, work: Callable[[], Any]) -> tuple[Any, CancellationView]:
    """Run work while the transaction that cuts is about to commit; it must wait for that."""
    begun = _begun(house)
    with Session(engine) as cutting, cutting.begin():
        ledger.cut(cutting, _row(cutting, begun), now=clock(cutting))
        with beside(work) as (waiting,):
            wait_until_blocked(engine)
            cutting.commit()
            done = waiting.result(20)
    with Session(engine) as session:
        view = read_cancellation(session, tenant_id=house.tenant_id, cancellation_id=begun, after=None, limit=100)
    return done, view


def _begun(house: House, key: str | None = None) -> UUID:
    asked = occasion_of("class.opening", "c-1")
    return transact(
        lambda tx: begin_cancellation(
            tx.session, tenant_id=house.tenant_id, asked=asked, reason="seat filled", actor="ann", key=key, now=tx.now
        )
    ).id


def _row(session: Session, cancellation_id: UUID) -> Any:
    return rows(session, "SELECT * FROM cancellation WHERE id = %(id)s", id=cancellation_id)[0]


def _cut(engine: Engine, cancellation_id: UUID) -> None:
    with committing(engine) as session:
        ledger.cut(session, _row(session, cancellation_id), now=clock(session))


def _leased(engine: Engine, house: House) -> Standing:
    with committing(engine) as session:
        return make_leased(session, house, now=clock(session))


def _open(engine: Engine) -> list[UUID]:
    with Session(engine) as session:
        return [row.event_id for row in rows(session, "SELECT event_id FROM intent WHERE closed_at IS NULL")]
