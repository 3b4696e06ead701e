"""Three clocks: the event's end, the person's cooldown, the retry window. The first to end closes, now, on every path."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from sqlalchemy.orm import Session

from policy.states import AttemptState
from policy.words import ErrorClass, Source
from tests.making import (
    NOON,
    House,
    Standing,
    attempt_of,
    claim,
    hear,
    intent_of,
    lease,
    make_attempt,
    make_house,
    make_leased,
    make_prepared,
    make_queued,
    outbox_of,
    prepare_all,
    prepared_of,
    retry_of,
    sample,
    transitions_of,
)

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
COOLDOWN: Final = 10 * MINUTE
WINDOW: Final = 5 * MINUTE
"""Of retries, where a test shortens it."""


def ending(after: timedelta, **changes: Any) -> dict[str, Any]:
    return {"expires_at": (NOON + after).isoformat(), **changes}


def hurried(session: Session) -> House:
    """Make a house whose retries have five minutes."""
    retry = sample()["categories"]["transactional"]["retry"] | {"window": "5m"}
    return make_house(session, policy=sample(retry=retry))


def in_cooldown_before_dispatch(session: Session) -> Standing:
    """Let somebody else's message take the slot after the acceptance; the next moment is when the cooldown ends."""
    house = make_house(session)
    waiting = make_queued(session, house, **ending(COOLDOWN, subject="c-2"), not_before=(NOON + SECOND).isoformat())
    make_prepared(session, house)
    claim(session, house, now=NOON + SECOND)
    return waiting


def in_cooldown_at_the_gate(session: Session) -> Standing:
    """Let somebody else's message take the slot after the lease: put back, and decided again."""
    house = make_house(session)
    waiting = make_queued(session, house, **ending(COOLDOWN, subject="c-2"))
    first = make_queued(session, house)
    leased = lease(session, waiting)
    prepare_all(session, Standing(house, first.event_id, first.intent_id, first.attempt_id, leased.lease))
    assert prepare_all(session, leased).put_back
    claim(session, house)
    return waiting


def in_cooldown_past_the_retry_window(session: Session) -> Standing:
    """Let a retry wait for longer than the five minutes it has, though its event lives for a day."""
    house = hurried(session)
    failed = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.NOT_HANDED_OFF)
    prepared_of(session, make_queued(session, house, subject="c-2"))
    claim(session, house, now=NOON + 2 * MINUTE)
    return failed


@pytest.mark.parametrize(
    "path", [in_cooldown_before_dispatch, in_cooldown_at_the_gate, in_cooldown_past_the_retry_window], ids=lambda p: p.__name__
)
def test_what_must_wait_for_longer_than_it_may_is_closed_now(session: Session, path: Callable[[Session], Standing]) -> None:
    standing = path(session)

    assert outbox_of(session, standing) is None
    assert transitions_of(session, standing)[-1][1:] == ("expired", "would_expire")
    assert intent_of(session, standing).closed_at < NOON + COOLDOWN


def test_a_retry_that_was_held_up_past_its_window_does_not_go_out(session: Session) -> None:
    house = hurried(session)
    failed = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.NOT_HANDED_OFF)

    assert claim(session, house, now=NOON + WINDOW) == []

    assert attempt_of(session, retry_of(session, failed)).state == "expired"
    assert (intent_of(session, failed).state, intent_of(session, failed).reason) == ("expired", "expired")


def test_a_retry_inside_its_window_goes_out_and_no_lease_outlives_it(session: Session) -> None:
    house = hurried(session)
    failed = make_attempt(session, house, AttemptState.FAILED, error_class=ErrorClass.NOT_HANDED_OFF)
    at_the_end = NOON + WINDOW - 30 * SECOND
    leased = lease(session, retry_of(session, failed), now=at_the_end)

    prepared = prepare_all(session, leased, now=NOON + WINDOW)

    assert (prepared.handoffs, list(prepared.put_back)) == ([], [leased.attempt_id])


@pytest.mark.parametrize(
    ("error_class", "retry_after", "lives_for", "reason"),
    [
        pytest.param(ErrorClass.TRANSIENT, None, 30 * SECOND, "transient", id="back-off"),
        pytest.param(ErrorClass.NOT_HANDED_OFF, None, 30 * SECOND, "not_handed_off", id="back-off of what never left"),
        pytest.param(ErrorClass.THROTTLED, 3600.0, HOUR, "throttled", id="Retry-After and the event's end"),
        pytest.param(ErrorClass.THROTTLED, 6 * 3600.0, 23 * HOUR, "throttled", id="Retry-After and the retry window"),
        pytest.param(ErrorClass.AUTH_CONFIG, None, 60 * SECOND, "auth_config", id="the route stopped"),
    ],
)
def test_a_failure_that_cannot_be_tried_again_in_time_ends_it_now_with_its_class(
    session: Session, error_class: ErrorClass, retry_after: float | None, lives_for: timedelta, reason: str
) -> None:
    """The attempt failed, which says more than that the next one would have come too late."""
    standing = make_prepared(session, make_house(session), **ending(lives_for))

    hear(session, standing, AttemptState.FAILED, source=Source.ANSWER, error_class=error_class, retry_after=retry_after)

    intent = intent_of(session, standing)
    assert (intent.state, intent.reason, intent.closed_at) == ("failed", reason, NOON)
    assert outbox_of(session, standing) is None


@pytest.mark.parametrize(
    ("carrier", "left", "handed_off"),
    [("kannel", 60 * SECOND, True), ("kannel", 59 * SECOND, False), ("twilio", SECOND, True), ("twilio", SECOND / 2, False)],
)
def test_what_has_less_time_left_than_the_carrier_can_be_told_is_closed(
    session: Session, carrier: str, left: timedelta, *, handed_off: bool
) -> None:
    """The carrier would go on trying when the event is over."""
    standing = make_leased(session, make_house(session, carrier=carrier), **ending(70 * SECOND))
    leased = lease(session, standing, now=NOON + 60 * SECOND) if left < 10 * SECOND else standing

    prepared = prepare_all(session, leased, now=NOON + 70 * SECOND - left)

    expected = "prepared" if handed_off else "expired"
    assert [h.submission.valid_for for h in prepared.handoffs] == [left] * handed_off
    assert (attempt_of(session, standing).state, outbox_of(session, standing)) == (expected, None)
    assert prepared.closed == (set() if handed_off else {standing.attempt_id})
