"""What prepare asks of the gate under its lock: whether this handoff may happen now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from policy.words import Reason


@dataclass(frozen=True, slots=True)
class Slot:
    """One person's slot in one category: the business key that has it, and until when (exclusive)."""

    business_key: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may go out; `slot` is what the gate keeps from now on."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Held:
    """It goes back to be decided again: at `until`, or at once where that is None."""

    reason: Reason
    until: datetime | None


def admit(
    *,
    business_key: str,
    cooldown: timedelta,
    slot: Slot | None,
    suppressed_at: datetime | None,
    seen_suppressed_at: datetime | None,
    now: datetime,
) -> Admitted | Held:
    """Admit one handoff, or say what holds it.

    `slot` and `suppressed_at` are the gate's: who has the category's slot, and the person's latest
    suppression; `seen_suppressed_at` is what the gate said when the decision was taken. They are
    compared for identity, not for order: a suppression that waited for a lock carries a time before
    the decision that did not see it. It is not judged here: the rule asks which categories it covers
    when the row is decided again.
    """
    if suppressed_at != seen_suppressed_at:
        return Held(Reason.OPTED_OUT, None)
    if slot is not None and slot.business_key != business_key and slot.until > now:
        return Held(Reason.COOLDOWN, slot.until)
    until = now + cooldown
    if slot is not None and slot.business_key == business_key:
        until = max(until, slot.until)  # another channel of the event may have been promised longer
    return Admitted(Slot(business_key, until))
