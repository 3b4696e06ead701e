"""What the states are, how they rank, and what a report does to one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class AttemptState(StrEnum):
    """Where one attempt is. The first four closings and `queued` lie before the handoff."""

    QUEUED = "queued"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    PREPARED = "prepared"
    SUBMITTED = "submitted"
    UNKNOWN = "unknown"
    FAILED = "failed"
    DELIVERED = "delivered"


class IntentState(StrEnum):
    """Where a wish stands: a projection of its attempts, kept beside them."""

    QUEUED = "queued"
    DEFERRED = "deferred"
    IN_FLIGHT = "in_flight"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class PublicState(StrEnum):
    """What clients read. `handed_off` says that the carrier has it, and no more."""

    QUEUED = "queued"
    DEFERRED = "deferred"
    HANDED_OFF = "handed_off"
    DELIVERED = "delivered"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SUPPRESSED = "suppressed"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class Judgement(StrEnum):
    """What became of a report: every one is kept, with this."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"


CLOSINGS: Final = frozenset({AttemptState.SUPPRESSED, AttemptState.EXPIRED, AttemptState.CANCELLED})

# Reports join over this order, whatever the order in which they arrive. One table per channel: on
# e-mail a permanent bounce will rank above `delivered`. A report about an attempt that is queued
# or closed (a restored ledger, a STOP that lost the race) applies as if it were prepared: the
# carrier's word is a fact, ours was a plan.
SMS_RANKS: Final = {
    AttemptState.QUEUED: 0,
    AttemptState.SUPPRESSED: 0,
    AttemptState.EXPIRED: 0,
    AttemptState.CANCELLED: 0,
    AttemptState.PREPARED: 0,
    AttemptState.SUBMITTED: 1,
    AttemptState.UNKNOWN: 2,
    AttemptState.FAILED: 3,
    AttemptState.DELIVERED: 4,
}


def judge(current: AttemptState, heard: AttemptState) -> Judgement:
    """Say what a report does to an attempt: apply, repeat, or come too late."""
    rank, new = SMS_RANKS[current], SMS_RANKS[heard]
    if new > rank:
        return Judgement.APPLIED
    return Judgement.DUPLICATE if new == rank else Judgement.STALE


def hear(current: AttemptState, heard: AttemptState) -> AttemptState:
    """Join a report into a state: the higher of the two."""
    return heard if judge(current, heard) is Judgement.APPLIED else current


PUBLIC: Final = {
    AttemptState.SUBMITTED: PublicState.HANDED_OFF,
    AttemptState.UNKNOWN: PublicState.UNKNOWN,
    AttemptState.FAILED: PublicState.FAILED,
    AttemptState.DELIVERED: PublicState.DELIVERED,
    AttemptState.SUPPRESSED: PublicState.SUPPRESSED,
    AttemptState.EXPIRED: PublicState.EXPIRED,
    AttemptState.CANCELLED: PublicState.CANCELLED,
}
