from __future__ import annotations

from datetime import datetime, timedelta

from policy.gate import Admitted, Held, Slot, admit
from policy.words import Reason
from tests.policy.making import NOON

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
OURS = "acme/class.opening/c-1/m-1"
THEIRS = "acme/class.opening/c-2/m-1"


def ask(
    *,
    slot: Slot | None = None,
    suppressed_at: datetime | None = None,
    seen: datetime | None = None,
    cooldown: timedelta = HOUR,
) -> Admitted | Held:
    return admit(business_key=OURS, cooldown=cooldown, slot=slot, suppressed_at=suppressed_at, seen_suppressed_at=seen, now=NOON)


def test_whoever_is_admitted_takes_the_slot_for_the_cooldown() -> None:
    assert ask() == Admitted(Slot(OURS, NOON + HOUR))


def test_a_slot_that_another_business_key_has_holds_until_it_ends() -> None:
    assert ask(slot=Slot(THEIRS, NOON + SECOND)) == Held(Reason.COOLDOWN, NOON + SECOND)


def test_a_slot_that_ends_now_is_free() -> None:
    assert ask(slot=Slot(THEIRS, NOON)) == Admitted(Slot(OURS, NOON + HOUR))


def test_a_slot_holds_even_where_the_version_now_in_force_has_no_cooldown() -> None:
    """The rule holds too; were the gate harder than the rule, the row would go to and fro."""
    assert ask(slot=Slot(THEIRS, NOON + SECOND), cooldown=timedelta()) == Held(Reason.COOLDOWN, NOON + SECOND)


def test_the_channels_of_one_event_do_not_refuse_each_other() -> None:
    assert ask(slot=Slot(OURS, NOON + SECOND)) == Admitted(Slot(OURS, NOON + HOUR))


def test_a_slot_never_gets_shorter_under_its_holder() -> None:
    assert ask(slot=Slot(OURS, NOON + 2 * HOUR)) == Admitted(Slot(OURS, NOON + 2 * HOUR))


def test_a_suppression_that_the_decision_may_not_have_seen_sends_it_back() -> None:
    assert ask(suppressed_at=NOON - SECOND) == Held(Reason.OPTED_OUT, None)
    assert ask(suppressed_at=NOON - HOUR, seen=NOON - SECOND) == Held(Reason.OPTED_OUT, None)


def test_a_suppression_that_the_decision_has_seen_was_its_to_judge() -> None:
    assert ask(suppressed_at=NOON - HOUR, seen=NOON - HOUR) == Admitted(Slot(OURS, NOON + HOUR))
