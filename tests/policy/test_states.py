from __future__ import annotations

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.states import CLOSINGS, SMS_RANKS, AttemptState, Judgement, hear, judge

QUEUED, PREPARED = AttemptState.QUEUED, AttemptState.PREPARED
SUBMITTED, UNKNOWN = AttemptState.SUBMITTED, AttemptState.UNKNOWN
FAILED, DELIVERED = AttemptState.FAILED, AttemptState.DELIVERED

# What a report can say.
HEARD = (AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.FAILED, AttemptState.DELIVERED)
reports = st.lists(st.sampled_from(HEARD), max_size=8)


@given(reports.flatmap(lambda heard: st.tuples(st.just(heard), st.permutations(heard))))
def test_the_order_of_reports_does_not_matter(heard: tuple[list[AttemptState], list[AttemptState]]) -> None:
    """Late, repeated and contradictory reports end in the same state, whatever came first."""
    one, shuffled = heard

    assert reduce(hear, one, PREPARED) is reduce(hear, shuffled, PREPARED)


@given(reports, reports)
def test_a_state_only_climbs(before: list[AttemptState], after: list[AttemptState]) -> None:
    state = reduce(hear, before, PREPARED)

    assert SMS_RANKS[reduce(hear, after, state)] >= SMS_RANKS[state]


@given(reports)
def test_hearing_it_all_again_changes_nothing(heard: list[AttemptState]) -> None:
    state = reduce(hear, heard, PREPARED)

    assert reduce(hear, heard, state) is state


@given(reports)
def test_delivered_is_never_taken_back(heard: list[AttemptState]) -> None:
    assert reduce(hear, heard, DELIVERED) is DELIVERED


@given(reports)
def test_failed_gives_way_to_delivered_alone(heard: list[AttemptState]) -> None:
    assert reduce(hear, heard, FAILED) is (DELIVERED if DELIVERED in heard else FAILED)


@pytest.mark.parametrize("state", sorted(CLOSINGS | {QUEUED, PREPARED}))
@pytest.mark.parametrize("heard", HEARD)
def test_the_carriers_word_about_an_attempt_we_never_handed_off_applies(state: AttemptState, heard: AttemptState) -> None:
    """A restored ledger, or a close that lost the race: what the carrier says is a fact, ours was a plan."""
    assert hear(state, heard) is heard


@pytest.mark.parametrize(
    ("current", "heard", "judgement"),
    [
        (SUBMITTED, DELIVERED, Judgement.APPLIED),
        (DELIVERED, DELIVERED, Judgement.DUPLICATE),
        (DELIVERED, FAILED, Judgement.STALE),
        (UNKNOWN, SUBMITTED, Judgement.STALE),
        (SUBMITTED, UNKNOWN, Judgement.APPLIED),
    ],
)
def test_a_report_is_applied_repeated_or_stale(current: AttemptState, heard: AttemptState, judgement: Judgement) -> None:
    assert judge(current, heard) is judgement
