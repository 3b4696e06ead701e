"""The feed: each transition exactly once, each intent's in order, while any number of writers commit."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.flows.feed import sequence_feed
from app.ground.db import rows
from app.ledger.feed import HistoryPage, UnknownCursor, read_history, sequence
from policy.states import AttemptState
from tests.making import (
    BEN,
    NOON,
    House,
    beside,
    clock,
    committing,
    count_of,
    hear,
    make_attempt,
    make_event,
    make_house,
    make_queued,
    together,
)


def read(session: Session, house: House, after: str | None = None, **wanted: Any) -> HistoryPage:
    return read_history(session, tenant_id=house.tenant_id, after=after, **({"limit": 100} | wanted))


def walk(session: Session, house: House, *, limit: int, **wanted: Any) -> list[Any]:
    page = read(session, house, limit=limit, **wanted)
    items = list(page.items)
    while page.has_more:
        page = read(session, house, page.next_cursor, limit=limit, **wanted)
        items += page.items
    return items


def test_a_transition_is_in_the_feed_once_it_has_a_place(session: Session) -> None:
    house = make_house(session)
    standing = make_queued(session, house)

    before = read(session, house).items
    moved = sequence(session)

    (item,) = read(session, house).items
    assert (before, moved, sequence(session)) == ([], 1, 0)
    assert (item.intent_id, item.n, item.state, item.attempt) == (standing.intent_id, 1, "queued", 1)


def test_pages_neither_skip_nor_repeat_and_the_last_says_so(session: Session) -> None:
    house = make_house(session)
    for n in range(7):
        make_event(session, house, subject=f"c-{n}")
    sequence(session)

    items = walk(session, house, limit=3)

    assert [item.position for item in items] == sorted({item.position for item in items})
    assert len(items) == 7
    last = read(session, house, limit=7)
    assert (last.has_more, read(session, house, last.next_cursor).items) == (False, [])


def test_an_empty_page_gives_a_cursor_to_go_on_from(session: Session) -> None:
    house = make_house(session)

    empty = read(session, house)
    make_event(session, house)
    sequence(session)

    assert len(read(session, house, empty.next_cursor).items) == 1


def test_each_intents_transitions_come_in_the_order_of_n(session: Session) -> None:
    house = make_house(session)
    for n in range(5):
        make_attempt(session, house, AttemptState.DELIVERED, subject=f"c-{n}", ref=f"m-{n}", sms=f"+1201555012{n}")

    sequence(session)

    items = read(session, house).items
    orders = [[i.n for i in items if i.intent_id == intent] for intent in {i.intent_id for i in items}]
    assert orders == [[1, 2]] * 5


def test_another_tenants_history_is_not_there(session: Session) -> None:
    ours, theirs = make_house(session), make_house(session)
    make_event(session, ours)
    make_event(session, theirs)
    sequence(session)

    assert [len(read(session, house).items) for house in (ours, theirs)] == [1, 1]


def test_history_is_read_by_recipient(session: Session) -> None:
    house = make_house(session)
    make_event(session, house)
    make_event(session, house, ref="m-2", sms=BEN)
    sequence(session)

    assert [item.recipient_ref for item in read(session, house, recipient="m-2").items] == ["m-2"]


def test_history_of_an_event_is_its_own_and_of_a_joined_one_that_of_the_intent_it_joined(session: Session) -> None:
    house = make_house(session)
    first = make_event(session, house)
    joined = make_event(session, house, key="k-2")
    make_event(session, house, subject="c-9")
    sequence(session)

    histories = [read(session, house, event_id=event.event_id).items for event in (first, joined)]

    assert histories[0] == histories[1]
    assert [item.event_id for item in histories[0]] == [first.event_id]


def test_another_tenants_event_has_no_history_here(session: Session) -> None:
    ours, theirs = make_house(session), make_house(session)
    event = make_event(session, theirs)
    sequence(session)

    assert read(session, ours, event_id=event.event_id).items == []


@pytest.mark.parametrize("cursor", ["", "x", "1", "1.", ".1", "1.x", "2.0", "1.-1", "1.1.1", "1." + "9" * 60, "\u0661.1"])
def test_a_cursor_that_is_not_of_this_feed_is_refused(session: Session, cursor: str) -> None:
    house = make_house(session)

    with pytest.raises(UnknownCursor):
        read(session, house, cursor)


def test_a_cursor_of_before_a_restore_is_refused(session: Session) -> None:
    house = make_house(session)
    cursor = read(session, house).next_cursor
    rows(session, "UPDATE feed_state SET epoch = epoch + 1")

    with pytest.raises(UnknownCursor):
        read(session, house, cursor)


def test_the_feed_says_until_when_it_is_complete_and_never_takes_it_back(session: Session) -> None:
    house = make_house(session)
    before = clock(session)
    sequence(session)
    first = read(session, house).complete_until
    rows(session, "UPDATE feed_state SET complete_until = %(later)s", later=before + timedelta(days=1))

    sequence(session)

    assert first >= before
    assert read(session, house).complete_until == before + timedelta(days=1)


def test_a_report_about_what_was_never_prepared_does_not_stop_the_feed(session: Session) -> None:
    """A restored ledger: one transition without a time of handoff must not hold up all the others for good."""
    house = make_house(session)
    hear(session, make_queued(session, house), AttemptState.DELIVERED)

    assert sequence(session) == 2
    assert [item.state for item in read(session, house).items] == ["queued", "delivered"]


def test_counts_grow_once_per_transition(session: Session) -> None:
    make_attempt(session, make_house(session), AttemptState.DELIVERED)
    for _ in range(2):
        sequence(session)

    found = rows(session, "SELECT name, label, value FROM tally WHERE name IN ('accepted', 'handoffs', 'transitions')")
    assert sorted((row.name, row.label, row.value) for row in found) == [
        ("accepted", "transactional", 1.0),
        ("handoffs", "transactional", 1.0),
        ("transitions", "delivered", 1.0),
        ("transitions", "queued", 1.0),
    ]


def test_a_second_sequencer_leaves_it_to_the_first(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        make_event(session, make_house(session))

    with Session(fresh_database) as first, first.begin():
        assert sequence(first) == 1
        with beside(sequence_feed) as (second,):
            assert second.result(5) == 0

    with Session(fresh_database) as session:
        assert (count_of(session, "feed"), count_of(session, "feed_pending")) == (1, 0)


def test_a_writer_that_commits_late_is_read_after_those_that_overtook_it(fresh_database: Engine) -> None:
    """A cursor never passes over a transition that was made earlier and committed later."""
    with committing(fresh_database) as session:
        house = make_house(session)

    with Session(fresh_database) as slow, slow.begin():
        late = make_event(slow, house, subject="late")
        with committing(fresh_database) as session:
            make_event(session, house, subject="early", ref="m-2")
        sequence_feed()
        with Session(fresh_database) as session:
            page = read(session, house)
        slow.commit()
    sequence_feed()

    with Session(fresh_database) as session:
        rest = read(session, house, page.next_cursor).items
    assert [item.subject for item in page.items] == ["early"]
    assert [item.event_id for item in rest] == [late.event_id]


def test_a_reader_that_walks_while_writers_commit_sees_each_transition_once_and_in_order(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
    writing = threading.Event()

    def write(writer: int) -> None:
        for n in range(6):
            with committing(fresh_database) as session:
                number = f"+12015550{100 + writer * 10 + n}"
                standing = make_queued(session, house, subject=f"c-{writer}-{n}", ref=f"m-{writer}-{n}", sms=number)
            for state in (AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.DELIVERED):
                with committing(fresh_database) as session:
                    hear(session, standing, state, now=NOON)

    def follow() -> list[Any]:
        items: list[Any] = []
        cursor = None
        while True:
            over = writing.is_set()
            sequence_feed()
            with Session(fresh_database) as session:
                # The other reader may hold the lock: what it sequences is there when it has committed.
                last = over and count_of(session, "feed_pending") == 0
            with Session(fresh_database) as session:
                page = read(session, house, cursor, limit=7)
            items += page.items
            cursor = page.next_cursor
            if last and not page.items:
                return items

    with beside(follow, follow) as readers:
        together(*(lambda w=w: write(w) for w in range(4)))
        writing.set()
        walks = [reader.result(30) for reader in readers]

    for items in walks:
        assert len({item.id for item in items}) == len(items) == 4 * 6 * 4
        orders = {item.intent_id: [i.n for i in items if i.intent_id == item.intent_id] for item in items}
        assert set(map(tuple, orders.values())) == {(1, 2, 3, 4)}
    assert walks[0] == walks[1]
