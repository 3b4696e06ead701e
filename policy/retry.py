"""Whether an intent gets another attempt, when, and by which route: after one that failed, and after one in doubt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import takewhile
from typing import Final
from uuid import UUID

from policy.document import CHOSEN, Backoff, RetryRoute, RetryRules
from policy.words import NOT_TAKEN, ErrorClass, Source


@dataclass(frozen=True, slots=True)
class Ended:
    """How one attempt of the intent ended, or that nobody knows."""

    error_class: ErrorClass | None
    """None: it is in doubt, and may have been taken."""


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


@dataclass(frozen=True, slots=True)
class Way:
    """A route that serves the person, and whether anything may go by it now."""

    route_id: UUID
    is_open: bool


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
    elsewhere: bool = False,
) -> Retry | NoRetry:
    """Answer for an intent whose last attempt failed: all its attempts that went out, the oldest first.

    What was certainly not taken goes again within the clocks, however often. A class that the policy
    lists goes again until the carrier has taken or refused `max_attempts`, or may have. All else does
    not. `elsewhere`: it goes by another route, which what this carrier asked for does not bind.
    """
    last = ended[-1].error_class
    if last not in NOT_TAKEN and last not in rules.classes & CHOSEN:
        return NoRetry(NoMore.CLASS_NOT_RETRIED)
    if last not in NOT_TAKEN and _are_used_up(rules, ended):
        return NoRetry(NoMore.ATTEMPTS_USED_UP)
    wait = _wait(rules.backoff, ended, retry_after=None if elsewhere else retry_after, jitter=jitter, elsewhere=elsewhere)
    return _in_time(rules, now + wait, accepted_at=accepted_at, expires_at=expires_at)


def may_resend(
    rules: RetryRules, *, ended: Sequence[Ended], accepted_at: datetime, expires_at: datetime, now: datetime
) -> Retry | NoRetry:
    """Answer for an intent whose last attempt is in doubt, where a rule for doubt has said resend: now, or not at all.

    That rule is the caller's to ask. Here it is held to the same maximum and the same clocks as a retry.
    """
    if _are_used_up(rules, ended):
        return NoRetry(NoMore.ATTEMPTS_USED_UP)
    return _in_time(rules, now, accepted_at=accepted_at, expires_at=expires_at)


def may_fail_over(rules: RetryRules, *, error_class: ErrorClass, taken: bool, source: Source) -> bool:
    """Say whether a failed attempt may go again by another route: only if the rule says so and it was not taken.

    A carrier that refuses in its answer took nothing. One that says so later, in a receipt or when asked,
    had it for a while: that goes again by the same route, which alone knows what it did with the first.
    """
    was_refused = error_class in NOT_TAKEN or source is Source.ANSWER
    return rules.route is RetryRoute.NEXT and was_refused and not taken


def next_way(ways: Sequence[Way], *, last: UUID | None, used: Collection[UUID]) -> UUID | None:
    """Choose, out of the ways by priority, the first open one that is new to the intent; None: stay with `last`.

    With none that is new, what cannot go by its own route goes by any open one.
    """
    are_open = [way.route_id for way in ways if way.is_open and way.route_id != last]
    is_stopped = any(way.route_id == last and not way.is_open for way in ways)
    new = next((route_id for route_id in are_open if route_id not in used), None)
    return are_open[0] if new is None and is_stopped and are_open else new


def _are_used_up(rules: RetryRules, ended: Sequence[Ended]) -> bool:
    """Say whether as many attempts as the policy allows were taken or refused, or may have been taken."""
    return sum(each.error_class not in NOT_TAKEN for each in ended) >= rules.max_attempts


def _in_time(rules: RetryRules, not_before: datetime, *, accepted_at: datetime, expires_at: datetime) -> Retry | NoRetry:
    in_time = not_before < min(expires_at, accepted_at + rules.window)
    return Retry(not_before) if in_time else NoRetry(NoMore.TOO_LATE)


def _wait(
    backoff: Backoff, ended: Sequence[Ended], *, retry_after: timedelta | None, jitter: float, elsewhere: bool
) -> timedelta:
    """Wait longer after each end of the same kind in a row, and never less than the carrier asked for."""
    classes = [each.error_class for each in ended]
    if classes[-1] is ErrorClass.AUTH_CONFIG and not elsewhere:
        return ROUTE_STOPPED_FOR
    kind: Collection[object] = NOT_TAKEN if classes[-1] in NOT_TAKEN else CHOSEN
    streak = len(list(takewhile(kind.__contains__, reversed(classes))))
    # Whole microseconds: a long streak overflows timedelta and float, but no int.
    grown: int = (backoff.initial // _INSTANT) * backoff.factor ** (streak - 1)
    wait = min(grown, backoff.longest // _INSTANT) * _INSTANT
    # On top, so that it also spreads those that one Retry-After told to come back together.
    return max(wait, retry_after or timedelta()) + jitter / 2 * wait
