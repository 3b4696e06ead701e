"""Whether an intent whose attempt failed for certain gets another one, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Final

from policy.document import CHOSEN, Backoff, RetryRules
from policy.words import NOT_TAKEN, ErrorClass


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt of the intent ended."""

    error_class: ErrorClass


class NoMore(StrEnum):
    """Why there is no further attempt. The intent itself closes with its last error class as its reason."""

    CLASS_NOT_RETRIED = "class_not_retried"
    ATTEMPTS_USED_UP = "attempts_used_up"
    TOO_LATE = "too_late"


@dataclass(frozen=True, slots=True)
class Retry:
    """A new attempt, due from `not_before` on."""

    not_before: datetime


@dataclass(frozen=True, slots=True)
class NoRetry:
    """No further attempt."""

    reason: NoMore


# The route is stopped meanwhile by a pause, and this only says when to see whether it still is.
ROUTE_STOPPED_FOR: Final = timedelta(seconds=60)

_INSTANT: Final = timedelta(microseconds=1)


def may_retry(
    rules: RetryRules,
    *,
    ended: Sequence[Ended],
    accepted_at: datetime,
    expires_at: datetime,
    retry_after: timedelta | None,
    jitter: float,
    now: datetime,
) -> Retry | NoRetry:
    """Answer for the attempts of an intent that have ended, the oldest first; there must be one.

    What was certainly not taken goes again within the clocks, however often. A class that the policy
    lists goes again until the carrier has taken or refused `max_attempts`. All else does not.
    """
    classes = [each.error_class for each in ended]
    last = classes[-1]
    if last not in NOT_TAKEN and last not in rules.classes & CHOSEN:
        return NoRetry(NoMore.CLASS_NOT_RETRIED)
    if last not in NOT_TAKEN and sum(each not in NOT_TAKEN for each in classes) >= rules.max_attempts:
        return NoRetry(NoMore.ATTEMPTS_USED_UP)
    not_before = now + _wait(rules.backoff, classes, retry_after=retry_after, jitter=jitter)
    in_time = not_before < min(expires_at, accepted_at + rules.window)
    return Retry(not_before) if in_time else NoRetry(NoMore.TOO_LATE)


def _wait(backoff: Backoff, classes: Sequence[ErrorClass], *, retry_after: timedelta | None, jitter: float) -> timedelta:
    """Wait longer after each end of the same kind in a row, and never less than the carrier asked for."""
    if classes[-1] is ErrorClass.AUTH_CONFIG:
        return ROUTE_STOPPED_FOR
    kind = NOT_TAKEN if classes[-1] in NOT_TAKEN else CHOSEN
    streak = len(list(takewhile(kind.__contains__, reversed(classes))))
    # Whole microseconds: a long streak overflows timedelta and float, but no int.
    grown: int = (backoff.initial // _INSTANT) * backoff.factor ** (streak - 1)
    wait = min(grown, backoff.longest // _INSTANT) * _INSTANT
    # On top, so that it also spreads those that one Retry-After told to come back together.
    return max(wait, retry_after or timedelta()) + jitter / 2 * wait
