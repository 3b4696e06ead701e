"""Reconciliation views: each shows what was planted for it, with age and stake, and leaves out what only looks like it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.carriers.base import Call, ReadReceipt, Report
from app.desk.cancel import cancel_event
from app.ground.db import rows
from app.ledger.audit.check import lowest_id
from app.ledger.books import lock_books
from app.ledger.receipts import Incoming, keep_receipts, keep_refused
from app.ledger.reconciliation import PAGE, STATEMENTS, SUMMARY, Summary, View, read_view, summarise
from app.ledger.review import park
from app.ledger.routes import read_routes
from policy.states import AttemptState
from policy.words import ErrorClass, Reason, Source
from tests.making import (
    BEN,
    NOON,
    House,
    Standing,
    clock,
    hear,
    make_attempt,
    make_event,
    make_house,
    make_prepared,
    make_queued,
    prepared_of,
    retry_of,
)

ALWAYS: Final = datetime(2020, 1, 1, tzinfo=UTC)  # ids are the machine's, NOON is ours
LATER: Final = NOON + timedelta(hours=1)
STAKE: Final[dict[str, Any]] = {"stake": {"count": 3, "unit": "seat"}}
CALL: Final = Call("POST", b"", {"Host": "notify.example.test"}, b"x=1")

Planted = tuple[UUID, UUID | None]
"""The row's own id (an attempt's, an event's, a receipt's), and its event."""


def forget(session: Session, statement: str, **params: object) -> None:
    """Write what no code of ours would."""
    session.execute(text("SET LOCAL daybook.retention = 'on'"))
    rows(session, statement, **params)


def unattempted(session: Session, house: House) -> Planted:
    standing = make_queued(session, house, **STAKE)
    forget(session, "DELETE FROM outbox WHERE intent_id = %(id)s", id=standing.intent_id)
    make_queued(session, house, ref="m-2", sms=BEN)
    parked = make_queued(session, house, subject="c-2")
    park(session, lock_books(session, [parked.intent_id]), {parked.attempt_id: Reason.LOST_LEASES}, now=NOON)
    make_attempt(session, house, AttemptState.SUBMITTED, ref="m-4", sms="+12015550126", remote_id="SM4")
    return standing.intent_id, standing.event_id


def prepared(session: Session, house: House) -> Planted:
    standing = make_prepared(session, house, **STAKE)
    make_attempt(session, house, AttemptState.SUBMITTED, ref="m-2", sms=BEN, remote_id="SM2")
    return standing.attempt_id, standing.event_id


def unchecked(session: Session, house: House) -> Planted:
    standing = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1", **STAKE)
    make_attempt(session, house, AttemptState.SUBMITTED, ref="m-2", sms=BEN, remote_id="SM2", now=LATER)
    make_attempt(session, house, AttemptState.DELIVERED, ref="m-3", sms="+12015550125", remote_id="SM3")
    return standing.attempt_id, standing.event_id


def failed_and_delivered(session: Session, house: House) -> Planted:
    standing = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, **STAKE)
    hear(session, standing, AttemptState.DELIVERED)
    retried = make_attempt(session, house, AttemptState.FAILED, ref="m-2", sms=BEN, error_class=ErrorClass.TRANSIENT)
    retry = prepared_of(session, retry_of(session, retried), now=LATER)
    hear(session, retry, AttemptState.DELIVERED, now=LATER)
    return standing.attempt_id, standing.event_id


def second_id(session: Session, house: House) -> Planted:
    standing = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1", **STAKE)
    (observed,) = hear(session, standing, AttemptState.SUBMITTED, remote_id="SM2")
    hear(session, standing, AttemptState.SUBMITTED, remote_id="SM1")
    return observed.told.id, standing.event_id


def cancel(session: Session, standing: Standing) -> None:
    cancel_event(session, tenant_id=standing.house.tenant_id, event_id=standing.event_id, actor="ann", now=NOON)


def cancelled_too_late(session: Session, house: House) -> Planted:
    standing = make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1", **STAKE)
    cancel(session, standing)
    hear(session, standing, AttemptState.DELIVERED, now=LATER)
    failed = make_attempt(session, house, AttemptState.SUBMITTED, ref="m-2", sms=BEN, remote_id="SM2")
    cancel(session, failed)
    hear(session, failed, AttemptState.FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER)
    cancel(session, make_queued(session, house, ref="m-3", sms="+12015550125"))
    return standing.attempt_id, standing.event_id


def cancelled_before_it_left(session: Session, house: House) -> Planted:
    """Plant what a restored ledger looks like: it knows the cancel and not the handoff."""
    standing = make_queued(session, house, **STAKE)
    cancel(session, standing)
    hear(session, standing, AttemptState.DELIVERED, source=Source.RECEIPT, now=LATER)
    moved = rows(session, "SELECT id FROM transition WHERE from_state = 'cancelled'")[0].id
    return moved, standing.event_id


def joined(session: Session, house: House) -> Planted:
    first = make_queued(session, house)
    later = make_event(session, house, key="k-2", **STAKE)
    promoted = make_queued(session, house, ref="m-2", sms=BEN)
    make_event(session, house, ref="m-2", sms=BEN, key="k-3")
    cancel(session, promoted)
    assert first.event_id != later.event_id
    return later.event_id, later.event_id


def told(remote_id: str) -> Incoming:
    reports = (Report(AttemptState.DELIVERED, remote_id),)
    return Incoming(CALL, remote_id, ReadReceipt(reports=reports, dedupe_key=remote_id, reference=None, address=None))


def unmatched(session: Session, house: House) -> Planted:
    route = read_routes(session, [house.route_id])[house.route_id]
    make_attempt(session, house, AttemptState.SUBMITTED, remote_id="SM1")
    return keep_receipts(session, route, [told("SM1"), told("SM-nobody")], now=NOON)[1].id, None


def quarantined(session: Session, house: House) -> Planted:
    route = read_routes(session, [house.route_id])[house.route_id]
    return keep_receipts(session, route, [told("SM-nobody"), Incoming(CALL, "k", None)], now=NOON)[1].id, None


def refused(session: Session, house: House) -> Planted:
    route = read_routes(session, [house.route_id])[house.route_id]
    keep_refused(session, route, CALL, cause="not_authentic", now=NOON)
    return rows(session, "SELECT id FROM refused_receipt")[0].id, None


PLANTED: Final[Mapping[str, tuple[View, Callable[[Session, House], Planted], datetime]]] = {
    "unattempted": (View.UNATTEMPTED, unattempted, NOON),
    "prepared": (View.PREPARED, prepared, NOON),
    "unchecked": (View.UNCHECKED, unchecked, NOON),
    "failed and delivered": (View.CONTRADICTED, failed_and_delivered, NOON),
    "a second id": (View.CONTRADICTED, second_id, NOON),
    "cancelled too late": (View.CANCELLED_DELIVERED, cancelled_too_late, NOON),
    "cancelled before it left": (View.CANCELLED_DELIVERED, cancelled_before_it_left, LATER),
    "joined": (View.JOINED, joined, NOON),
    "unmatched": (View.UNMATCHED, unmatched, NOON),
    "quarantined": (View.QUARANTINED, quarantined, NOON),
    "refused": (View.REFUSED, refused, NOON),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_view_shows_what_was_planted_and_nothing_that_only_looks_like_it(session: Session, name: str) -> None:
    view, plant, at = PLANTED[name]
    house, stranger = make_house(session), make_house(session)
    row_id, event_id = plant(session, house)
    now = LATER + timedelta(seconds=1)

    (summary,) = summarise(session, [view], tenant_id=house.tenant_id, since=ALWAYS, now=now)
    page = read_view(session, view, tenant_id=house.tenant_id, since=ALWAYS, after=None, limit=10, now=now)
    theirs = summarise(session, [*View], tenant_id=stranger.tenant_id, since=ALWAYS, now=now)

    assert [(row.id, row.event_id) for row in page] == [(row_id, event_id)]
    assert summary.count == 1
    assert summary.oldest_at is not None
    assert abs(summary.oldest_at - at) < timedelta(minutes=1)
    assert summary.oldest_for == now - summary.oldest_at
    assert summary.stake == ([] if event_id is None else [STAKE["stake"]])
    assert [s for s in theirs if s.count] == []


def test_every_view_has_its_planted_row() -> None:
    assert {view for view, _, _ in PLANTED.values()} == {*View}


def test_an_ordinary_day_leaves_nothing_in_any_view(session: Session) -> None:
    house = make_house(session)
    make_queued(session, house)
    make_attempt(session, house, AttemptState.DELIVERED, ref="m-2", sms=BEN, remote_id="SM2")

    found = summarise(session, [*View], tenant_id=house.tenant_id, since=ALWAYS, now=NOON)

    assert found == [Summary(view, 0, None, None, []) for view in View]


def test_pages_end_where_the_next_begins(session: Session) -> None:
    house = make_house(session)
    make_queued(session, house)
    ids = [make_event(session, house, key=f"k-{n}").event_id for n in range(5)]

    def page(after: UUID | None) -> list[Any]:
        return read_view(session, View.JOINED, tenant_id=house.tenant_id, since=ALWAYS, after=after, limit=2, now=NOON)

    pages = [first := page(None), second := page(first[-1].id), third := page(second[-1].id), page(third[-1].id)]

    assert [row.id for each in pages for row in each] == ids


@pytest.mark.parametrize("name", ["failed and delivered", "a second id", "cancelled too late", "joined"])
def test_what_happened_once_is_shown_from_an_instant_on(session: Session, name: str) -> None:
    view, plant, _ = PLANTED[name]
    house = make_house(session)
    plant(session, house)
    now = clock(session)

    (shown,), (gone,) = (
        summarise(session, [view], tenant_id=house.tenant_id, since=since, now=now)
        for since in (now - timedelta(minutes=5), now + timedelta(minutes=5))
    )

    assert (shown.count, gone.count) == (1, 0)


INDEXES: Final = {
    View.UNATTEMPTED: {"ix_intent_open"},
    View.PREPARED: {"ix_attempt_next_check"},
    View.UNCHECKED: {"ix_attempt_next_check"},
    View.CONTRADICTED: {"ix_attempt_contradicted", "ix_observation_conflict"},
    View.CANCELLED_DELIVERED: {"ix_intent_close_requested", "ix_transition_after_cancel"},
    View.JOINED: {"pk_joining"},
    View.UNMATCHED: {"ix_receipt_unobserved"},
    View.QUARANTINED: {"ix_receipt_quarantined"},
    View.REFUSED: {"ix_refused_receipt_route_id_received_at"},
}


@pytest.mark.parametrize("view", View)
def test_a_view_is_read_by_an_index_that_holds_little_else(session: Session, view: View) -> None:
    """With more rows than a page the planner does so by itself; with none it has to be told that reading all is dear.

    And the tables must be as new: what autovacuum found in them while other tests ran, or that it found nothing, is no ground
    to choose an index by.
    """
    session.execute(text("SET LOCAL daybook.retention = 'on'"))
    session.execute(text("TRUNCATE event, intent, attempt, observation, transition, joining, receipt, refused_receipt CASCADE"))
    session.execute(
        text("DELETE FROM pg_statistic WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)")
    )
    session.execute(text("SET LOCAL enable_seqscan = off"))
    session.execute(text("SET LOCAL enable_bitmapscan = off"))
    params = {"tenant": uuid4(), "since": NOON, "since_id": lowest_id(NOON), "now": NOON, "after": None, "limit": 10}

    plans = [
        "\n".join(row[0] for row in rows(session, f"EXPLAIN {statement.format(view=STATEMENTS[view])}", **params))
        for statement in (SUMMARY, PAGE)
    ]

    assert [{index for index in INDEXES[view] if index in plan} for plan in plans] == [INDEXES[view]] * 2
    assert [line for plan in plans for line in plan.splitlines() if "Seq Scan" in line] == []
