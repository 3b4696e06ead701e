from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.document import CHOSEN, Backoff, RetryRules
from policy.retry import Ended, NoMore, NoRetry, Retry, may_retry
from policy.words import NOT_TAKEN, ErrorClass
from tests.policy.making import NOON

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
RULES = RetryRules(
    classes=frozenset({ErrorClass.TRANSIENT}),
    max_attempts=3,
    backoff=Backoff(initial=30 * SECOND, factor=2, longest=10 * MINUTE),
    window=timedelta(hours=6),
)
NEVER = sorted(set(ErrorClass) - NOT_TAKEN - CHOSEN)


def answer(
    *classes: ErrorClass,
    after: timedelta = timedelta(),
    lives_for: timedelta = timedelta(days=1),
    retry_after: timedelta | None = None,
    jitter: float = 0.0,
) -> Retry | NoRetry:
    return may_retry(
        RULES,
        ended=[Ended(each) for each in classes],
        accepted_at=NOON,
        expires_at=NOON + lives_for,
        retry_after=retry_after,
        jitter=jitter,
        now=NOON + after,
    )


def wait(*classes: ErrorClass, retry_after: timedelta | None = None, jitter: float = 0.0) -> timedelta:
    retry = answer(*classes, retry_after=retry_after, jitter=jitter)
    assert isinstance(retry, Retry)
    return retry.not_before - NOON


@pytest.mark.parametrize("error_class", NEVER)
def test_what_is_permanent_opted_out_or_not_understood_is_never_tried_again(error_class: ErrorClass) -> None:
    assert answer(error_class) == NoRetry(NoMore.CLASS_NOT_RETRIED)


def test_a_class_that_the_policy_does_not_list_is_not_tried_again() -> None:
    assert answer(ErrorClass.BOUNCED_LATE) == NoRetry(NoMore.CLASS_NOT_RETRIED)


def test_a_class_that_no_policy_may_list_is_not_tried_again_even_if_one_did() -> None:
    rules = RetryRules(frozenset({ErrorClass.OPTED_OUT}), RULES.max_attempts, RULES.backoff, RULES.window)

    retry = may_retry(
        rules,
        ended=[Ended(ErrorClass.OPTED_OUT)],
        accepted_at=NOON,
        expires_at=NOON + MINUTE,
        retry_after=None,
        jitter=0,
        now=NOON,
    )

    assert retry == NoRetry(NoMore.CLASS_NOT_RETRIED)


def test_the_back_off_grows_up_to_its_longest() -> None:
    transient = ErrorClass.TRANSIENT

    assert wait(transient) == 30 * SECOND
    assert wait(transient, transient) == 60 * SECOND
    assert wait(*[ErrorClass.THROTTLED] * 4) == 240 * SECOND
    assert wait(*[ErrorClass.NOT_HANDED_OFF] * 2000) == 10 * MINUTE


def test_another_kind_of_end_begins_the_back_off_anew() -> None:
    assert wait(ErrorClass.THROTTLED, ErrorClass.NOT_HANDED_OFF, ErrorClass.TRANSIENT) == 30 * SECOND


def test_attempts_are_used_up_by_those_the_carrier_refused_and_by_no_others() -> None:
    transient, throttled, never_left = ErrorClass.TRANSIENT, ErrorClass.THROTTLED, ErrorClass.NOT_HANDED_OFF

    assert answer(transient, transient, transient) == NoRetry(NoMore.ATTEMPTS_USED_UP)
    assert isinstance(answer(throttled, never_left, throttled, transient, ErrorClass.AUTH_CONFIG, transient), Retry)
    assert isinstance(answer(transient, transient, throttled), Retry)


def test_a_throttled_attempt_waits_as_long_as_the_carrier_asked() -> None:
    assert wait(ErrorClass.THROTTLED, retry_after=5 * MINUTE) == 5 * MINUTE
    assert wait(ErrorClass.THROTTLED, retry_after=SECOND) == 30 * SECOND


def test_jitter_only_ever_adds() -> None:
    assert wait(ErrorClass.TRANSIENT, jitter=0.5) == 37.5 * SECOND
    assert wait(ErrorClass.THROTTLED, retry_after=5 * MINUTE, jitter=0.5) == 5 * MINUTE + 7.5 * SECOND


def test_a_stopped_route_is_looked_at_again_after_a_minute() -> None:
    assert wait(ErrorClass.AUTH_CONFIG, ErrorClass.AUTH_CONFIG, jitter=0.9) == MINUTE


def test_nothing_is_tried_again_past_the_clocks() -> None:
    transient = ErrorClass.TRANSIENT

    assert answer(transient, lives_for=30 * SECOND) == NoRetry(NoMore.TOO_LATE)
    assert answer(transient, after=RULES.window - 30 * SECOND) == NoRetry(NoMore.TOO_LATE)
    assert answer(ErrorClass.NOT_HANDED_OFF, retry_after=RULES.window) == NoRetry(NoMore.TOO_LATE)
    assert isinstance(answer(transient, after=RULES.window - 31 * SECOND), Retry)


retried = st.lists(st.sampled_from(sorted(NOT_TAKEN | {ErrorClass.TRANSIENT})), min_size=1, max_size=30)
jitters = st.floats(0, 1, exclude_max=True)
waits = st.none() | st.timedeltas(timedelta(), timedelta(hours=1))


@given(retried, waits, jitters, st.timedeltas(timedelta(), timedelta(hours=5)))
def test_a_retry_lies_ahead_within_the_clocks_and_not_before_the_carrier_wants_it(
    classes: Sequence[ErrorClass], retry_after: timedelta | None, jitter: float, after: timedelta
) -> None:
    """An attempt ends after it was due, so times that lie ahead of now never go back."""
    retry = answer(*classes, after=after, retry_after=retry_after, jitter=jitter)
    due = retry.not_before if isinstance(retry, Retry) else NOON + after + 30 * SECOND

    assert NOON + after + 30 * SECOND <= due
    assert isinstance(retry, NoRetry) or due < NOON + RULES.window
    assert (
        isinstance(retry, NoRetry)
        or classes[-1] is not ErrorClass.THROTTLED
        or due >= NOON + after + (retry_after or timedelta())
    )


@given(st.sampled_from([ErrorClass.THROTTLED, ErrorClass.NOT_HANDED_OFF]), st.integers(1, 40), waits, jitters)
def test_one_more_end_of_a_kind_never_shortens_the_wait(
    error_class: ErrorClass, count: int, retry_after: timedelta | None, jitter: float
) -> None:
    once = wait(*[error_class] * count, retry_after=retry_after, jitter=jitter)

    assert wait(*[error_class] * (count + 1), retry_after=retry_after, jitter=jitter) >= once
