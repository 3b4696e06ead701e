"""The retry matrix: every error class against every rule, written down cell by cell."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from policy.document import Backoff, RetryRoute, RetryRules
from policy.retry import Ended, NoMore, NoRetry, Retry, Way, may_fail_over, may_resend, may_retry, next_way
from policy.words import ErrorClass, Source
from tests.policy.making import NOON

HOUR: Final = timedelta(hours=1)
LISTED: Final = frozenset({ErrorClass.TRANSIENT, ErrorClass.BOUNCED_LATE})
AGAIN, CLASS, USED_UP, LATE = "again", NoMore.CLASS_NOT_RETRIED, NoMore.ATTEMPTS_USED_UP, NoMore.TOO_LATE

COLUMNS: Final = ("listed", "not listed", "maximum reached", "window over", "event over")
MATRIX: Final = {
    ErrorClass.NOT_HANDED_OFF: (AGAIN, AGAIN, AGAIN, LATE, LATE),
    ErrorClass.THROTTLED: (AGAIN, AGAIN, AGAIN, LATE, LATE),
    ErrorClass.AUTH_CONFIG: (AGAIN, AGAIN, AGAIN, LATE, LATE),
    ErrorClass.TRANSIENT: (AGAIN, CLASS, USED_UP, LATE, LATE),
    ErrorClass.BOUNCED_LATE: (AGAIN, CLASS, USED_UP, LATE, LATE),
    ErrorClass.PERMANENT_RECIPIENT: (CLASS, CLASS, CLASS, CLASS, CLASS),
    ErrorClass.PERMANENT_CONTENT: (CLASS, CLASS, CLASS, CLASS, CLASS),
    ErrorClass.OPTED_OUT: (CLASS, CLASS, CLASS, CLASS, CLASS),
    ErrorClass.ARTIFACT_MISMATCH: (CLASS, CLASS, CLASS, CLASS, CLASS),
    ErrorClass.UNCLASSIFIED: (CLASS, CLASS, CLASS, CLASS, CLASS),
}
CELLS: Final = [(c, column, row[n]) for c, row in MATRIX.items() for n, column in enumerate(COLUMNS)]


def rules(classes: frozenset[ErrorClass] = LISTED, *, most: int = 3, route: RetryRoute = RetryRoute.SAME) -> RetryRules:
    backoff = Backoff(initial=timedelta(seconds=30), factor=2, longest=timedelta(minutes=10))
    return RetryRules(classes, max_attempts=most, backoff=backoff, window=6 * HOUR, route=route)


def ended(*classes: ErrorClass | None) -> list[Ended]:
    return [Ended(each) for each in classes]


def word(answer: Retry | NoRetry) -> str:
    return AGAIN if isinstance(answer, Retry) else answer.reason


def test_the_matrix_names_every_class() -> None:
    assert set(MATRIX) == set(ErrorClass)


@pytest.mark.parametrize(("error_class", "column", "expected"), CELLS)
def test_a_failure_is_tried_again_where_the_matrix_says_so(error_class: ErrorClass, column: str, expected: str) -> None:
    listed = {"not listed": rules(frozenset()), "maximum reached": rules(most=1)}.get(column, rules())
    answer = may_retry(
        listed,
        ended=ended(error_class),
        accepted_at=NOON - (6 * HOUR if column == "window over" else timedelta()),
        expires_at=NOON + (timedelta(seconds=1) if column == "event over" else 24 * HOUR),
        retry_after=None,
        jitter=0.0,
        now=NOON,
    )

    assert word(answer) == expected


# What is in doubt may have been taken, and so counts; what was not taken does not.
RESENDS: Final = [
    ((None,), 2, AGAIN),
    ((None,), 1, USED_UP),
    ((None, None), 2, USED_UP),
    ((ErrorClass.TRANSIENT, None), 2, USED_UP),
    ((ErrorClass.THROTTLED, ErrorClass.NOT_HANDED_OFF, ErrorClass.AUTH_CONFIG, None), 2, AGAIN),
]


@pytest.mark.parametrize(("history", "most", "expected"), RESENDS)
def test_what_is_in_doubt_is_sent_again_up_to_the_maximum(
    history: tuple[ErrorClass | None, ...], most: int, expected: str
) -> None:
    answer = may_resend(rules(most=most), ended=ended(*history), accepted_at=NOON, expires_at=NOON + HOUR, now=NOON)

    assert word(answer) == expected


def test_what_is_in_doubt_is_sent_again_at_once_and_within_the_clocks_only() -> None:
    one = ended(None)

    assert may_resend(rules(), ended=one, accepted_at=NOON, expires_at=NOON + HOUR, now=NOON) == Retry(NOON)
    assert may_resend(rules(), ended=one, accepted_at=NOON - 6 * HOUR, expires_at=NOON + HOUR, now=NOON) == NoRetry(LATE)
    assert may_resend(rules(), ended=one, accepted_at=NOON, expires_at=NOON, now=NOON) == NoRetry(LATE)


def test_an_attempt_in_doubt_counts_for_the_failure_that_follows_it() -> None:
    history = ended(None, ErrorClass.TRANSIENT)
    clocks: dict[str, Any] = {"accepted_at": NOON, "expires_at": NOON + HOUR, "now": NOON}

    assert may_retry(rules(most=2), ended=history, retry_after=None, jitter=0.0, **clocks) == NoRetry(USED_UP)
    assert word(may_retry(rules(most=3), ended=history, retry_after=None, jitter=0.0, **clocks)) == AGAIN


# Another route: class, said in the answer or later, taken, and whether it may go there.
ELSEWHERE: Final = [
    (ErrorClass.TRANSIENT, Source.ANSWER, False, True),
    (ErrorClass.TRANSIENT, Source.ANSWER, True, False),
    (ErrorClass.TRANSIENT, Source.RECEIPT, False, False),
    (ErrorClass.TRANSIENT, Source.POLL, True, False),
    (ErrorClass.BOUNCED_LATE, Source.RECEIPT, True, False),
    (ErrorClass.BOUNCED_LATE, Source.LOOKUP, False, False),
    (ErrorClass.NOT_HANDED_OFF, Source.ANSWER, False, True),
    (ErrorClass.NOT_HANDED_OFF, Source.RECONCILE, False, True),
    (ErrorClass.THROTTLED, Source.ANSWER, False, True),
    (ErrorClass.THROTTLED, Source.ANSWER, True, False),
    (ErrorClass.AUTH_CONFIG, Source.ANSWER, False, True),
]


@pytest.mark.parametrize(("error_class", "source", "taken", "expected"), ELSEWHERE)
def test_only_what_is_known_not_to_have_been_taken_goes_by_another_route(
    error_class: ErrorClass, source: Source, *, taken: bool, expected: bool
) -> None:
    told: dict[str, Any] = {"error_class": error_class, "taken": taken, "source": source}

    assert may_fail_over(rules(route=RetryRoute.NEXT), **told) is expected
    assert may_fail_over(rules(route=RetryRoute.SAME), **told) is False


A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)
WAYS: Final = {
    "the next by priority": ("ABC", "A", "A", B),
    "one that is stopped is passed over": ("AbC", "A", "A", C),
    "one that was used is passed over": ("ABC", "B", "AB", C),
    "a better one that is new": ("ABC", "B", "B", A),
    "none is new": ("AB", "B", "AB", None),
    "none is new and its own is stopped": ("Ab", "B", "AB", A),
    "none is open": ("ab", "B", "AB", None),
    "there is no other": ("A", "A", "A", None),
    "none at all": ("", "A", "A", None),
}


@pytest.mark.parametrize(("written", "last", "used", "expected"), WAYS.values(), ids=WAYS)
def test_the_next_way_is_new_and_open(written: str, last: str, used: str, expected: UUID | None) -> None:
    """Capitals are open, small letters stopped, in the order of their priority."""
    routes = {"A": A, "B": B, "C": C}
    ways = [Way(routes[letter.upper()], is_open=letter.isupper()) for letter in written]

    assert next_way(ways, last=routes[last], used={routes[letter] for letter in used}) == expected


def test_by_another_route_neither_the_carriers_wish_nor_a_stopped_route_is_waited_for() -> None:
    clocks: dict[str, Any] = {"accepted_at": NOON, "expires_at": NOON + HOUR, "now": NOON}
    throttled, stopped = ended(ErrorClass.THROTTLED), ended(ErrorClass.AUTH_CONFIG)
    soon = Retry(NOON + timedelta(seconds=30))

    assert may_retry(rules(), ended=throttled, retry_after=HOUR / 2, jitter=0.0, elsewhere=True, **clocks) == soon
    assert may_retry(rules(), ended=stopped, retry_after=None, jitter=0.0, elsewhere=True, **clocks) == soon
