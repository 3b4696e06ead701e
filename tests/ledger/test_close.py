"""Close: future work only. The first close wins, and the key passes on only when nothing was handed off."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.books import lock_books
from app.ledger.close import Closing, close_intents
from app.people.contacts import address_hash
from app.people.suppress import suppress
from policy.states import CLOSINGS, AttemptState
from policy.words import Channel, ErrorClass
from tests.making import (
    BEN,
    NOON,
    House,
    Standing,
    attempt_of,
    attempts_of,
    count_of,
    hear,
    intent_of,
    make_attempt,
    make_event,
    make_house,
    make_leased,
    make_queued,
    outbox_of,
    transitions_of,
)

LATER = NOON + timedelta(minutes=1)
AFTER_HANDOFF = [AttemptState.PREPARED, AttemptState.SUBMITTED, AttemptState.UNKNOWN]


def close(session: Session, standing: Standing, state: AttemptState = AttemptState.CANCELLED) -> tuple[int, int]:
    closing = Closing(standing.intent_id, state, state.value, "operator")
    done = close_intents(session, lock_books(session, [standing.intent_id]), [closing], now=LATER)
    return len(done.closed), len(done.requested)


def own_intents(session: Session, event_id: UUID) -> list[str]:
    return [row.state for row in rows(session, "SELECT state FROM intent WHERE event_id = %(id)s", id=event_id)]


@pytest.mark.parametrize("state", sorted(CLOSINGS))
def test_what_is_queued_closes_for_good(session: Session, state: AttemptState) -> None:
    standing = make_queued(session, make_house(session))

    assert close(session, standing, state) == (1, 0)

    intent = intent_of(session, standing)
    assert (attempt_of(session, standing).state, outbox_of(session, standing)) == (state, None)
    assert (intent.state, intent.reason, intent.closed_at, intent.holds_key) == (state, state, LATER, False)
    assert transitions_of(session, standing)[-1] == ("queued", state, state)


def test_a_leased_row_closes_as_well(session: Session) -> None:
    standing = make_leased(session, make_house(session))

    assert close(session, standing) == (1, 0)


def test_the_first_close_wins(session: Session) -> None:
    standing = make_queued(session, make_house(session))
    close(session, standing, AttemptState.EXPIRED)
    before = intent_of(session, standing)

    assert close(session, standing) == (0, 0)
    assert intent_of(session, standing) == before


@pytest.mark.parametrize("state", AFTER_HANDOFF)
def test_after_a_handoff_a_close_is_a_request(session: Session, state: AttemptState) -> None:
    standing = make_attempt(session, make_house(session), state)
    before = transitions_of(session, standing)

    assert close(session, standing) == (0, 1)

    intent = intent_of(session, standing)
    assert (intent.closed_at, intent.close_request, intent.close_requested_at) == (None, "cancelled", LATER)
    assert (attempt_of(session, standing).state, transitions_of(session, standing)) == (state, before)


@pytest.mark.parametrize("state", AFTER_HANDOFF[1:])
def test_a_request_moves_the_next_check_to_the_horizon(session: Session, state: AttemptState) -> None:
    standing = make_attempt(session, make_house(session), state)

    close(session, standing)

    assert attempt_of(session, standing).next_check_at == attempt_of(session, standing).horizon_at


def test_a_request_leaves_a_prepared_attempt_its_deadline(session: Session) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.PREPARED)

    close(session, standing)

    assert attempt_of(session, standing).next_check_at == NOON + timedelta(seconds=25)


def test_the_first_request_stays(session: Session) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.SUBMITTED)
    close(session, standing, AttemptState.EXPIRED)

    close(session, standing)

    assert intent_of(session, standing).close_request == "expired"


def test_a_receipt_after_a_request_is_heard_and_ends_the_intent(session: Session) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.SUBMITTED)
    close(session, standing)

    hear(session, standing, AttemptState.DELIVERED, now=LATER)

    intent = intent_of(session, standing)
    assert (intent.state, intent.reason, intent.close_request) == ("delivered", "delivered", "cancelled")


def test_a_retry_that_waits_closes_and_the_key_stays_with_what_was_handed_off(session: Session) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.FAILED, remote_id="SM1", error_class=ErrorClass.TRANSIENT)

    assert close(session, standing) == (1, 0)

    assert [a.state for a in attempts_of(session, standing.intent_id)] == ["failed", "cancelled"]
    assert (intent_of(session, standing).state, intent_of(session, standing).holds_key) == ("cancelled", True)


@pytest.mark.parametrize("error_class", [ErrorClass.NOT_HANDED_OFF, ErrorClass.THROTTLED, ErrorClass.AUTH_CONFIG])
def test_what_was_certainly_not_taken_does_not_keep_the_key(session: Session, error_class: ErrorClass) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.FAILED, error_class=error_class)

    close(session, standing)

    assert not intent_of(session, standing).holds_key


def test_the_newest_unexpired_event_that_joined_gets_the_freed_key(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    older = make_event(session, house, key="k-2", now=NOON + timedelta(seconds=1))
    newest = make_event(session, house, key="k-3", now=NOON + timedelta(seconds=2))
    expired = make_event(session, house, key="k-4", expires_at="2026-12-01T17:00:30Z", now=NOON + timedelta(seconds=3))

    close(session, first)

    assert [own_intents(session, e.event_id) for e in (older, newest, expired)] == [[], ["queued"], []]


def test_a_second_close_passes_the_key_on_to_an_older_one_and_the_third_to_nobody(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    older = make_event(session, house, key="k-2", now=NOON + timedelta(seconds=1))
    newest = make_event(session, house, key="k-3", now=NOON + timedelta(seconds=2))

    close(session, first)
    close(session, promoted(session, house, newest.event_id))
    close(session, promoted(session, house, older.event_id))

    assert own_intents(session, newest.event_id) == own_intents(session, older.event_id) == ["cancelled"]
    assert count_of(session, "intent") == 3
    assert count_of(session, "intent", holds_key=True) == 0


def promoted(session: Session, house: House, event_id: UUID) -> Standing:
    (intent,) = rows(session, "SELECT id FROM intent WHERE event_id = %(id)s", id=event_id)
    return Standing(house, event_id, intent.id, attempts_of(session, intent.id)[0].id)


def test_a_promoted_event_goes_out_to_its_own_address_and_is_dated_from_its_own_acceptance(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    joined = make_event(session, house, key="k-2", sms=BEN, now=NOON + timedelta(seconds=2))

    close(session, first)

    intent = intent_of(session, promoted(session, house, joined.event_id))
    assert bytes(intent.gate_hash) == address_hash(Channel.SMS, BEN).digest
    assert (intent.accepted_at, intent.expires_at) == (joined.accepted_at, joined.expires_at)


def test_a_promotion_is_decided_anew(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    joined = make_event(session, house, key="k-2", sms=BEN)
    digest = address_hash(Channel.SMS, BEN).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=digest, source="api", cause_id=None, now=NOON)

    close(session, first)

    assert own_intents(session, joined.event_id) == ["suppressed"]


def test_a_promotion_that_closes_at_once_passes_the_key_on(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    older = make_event(session, house, key="k-2", now=NOON + timedelta(seconds=1))
    newest = make_event(session, house, key="k-3", sms=BEN, now=NOON + timedelta(seconds=2))
    digest = address_hash(Channel.SMS, BEN).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=digest, source="api", cause_id=None, now=NOON)

    close(session, first)

    assert [own_intents(session, e.event_id) for e in (newest, older)] == [["suppressed"], ["queued"]]


def test_nobody_is_promoted_while_the_key_is_held_by_a_handoff(session: Session) -> None:
    standing = make_attempt(session, make_house(session), AttemptState.SUBMITTED)
    joined = make_event(session, standing.house, key="k-2")

    close(session, standing)
    hear(session, standing, AttemptState.FAILED, error_class=ErrorClass.PERMANENT_RECIPIENT, now=LATER)

    assert own_intents(session, joined.event_id) == []


def test_an_event_that_was_promoted_tells_of_its_own_intent(session: Session) -> None:
    house = make_house(session)
    first = make_queued(session, house)
    joined = make_event(session, house, key="k-2")
    close(session, first)

    again = make_event(session, house, key="k-2")

    assert (again.duplicate, again.intents[0].joined) == (True, False)
    assert again.intents[0].intent_id != joined.intents[0].intent_id
