"""What a person may answer to a question: the whole table, and the books that each answer stands on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from policy.settle import Act, Question, WhyNot, act_of, answers_to
from policy.states import AttemptState
from policy.words import Settlement
from tests.making import NOON

DELIVERED, FAILED, RESEND, LEAVE = Settlement
DOUBT = Question(
    cause="horizon",
    state=AttemptState.UNKNOWN,
    is_parked=False,
    is_last=True,
    is_asked=False,
    is_open=True,
    is_closing=False,
    expires_at=NOON + timedelta(hours=1),
)
PARKED = replace(DOUBT, cause="lost_leases", state=AttemptState.QUEUED, is_parked=True)
TWICE = replace(DOUBT, cause="second_handoff", state=AttemptState.DELIVERED, is_open=False)
REFUSED = replace(DOUBT, cause="observation_refused", is_asked=True)
ENDED = NOON - timedelta(seconds=1)

TABLE = [
    (DOUBT, Act.REPORT, Act.REPORT, Act.RETRY, Act.CLOSE),
    (replace(DOUBT, cause="not_found", is_asked=True), Act.REPORT, Act.REPORT, Act.RETRY, Act.CLOSE),
    (replace(DOUBT, is_closing=True), Act.REPORT, Act.REPORT, WhyNot.CLOSING, Act.CLOSE),
    (replace(DOUBT, expires_at=NOON), Act.REPORT, Act.REPORT, WhyNot.ENDED, Act.CLOSE),
    (replace(DOUBT, is_open=False), Act.REPORT, Act.REPORT, WhyNot.CLOSED, Act.NOTE),
    (PARKED, WhyNot.PARKED, Act.GIVE_UP, Act.RELEASE, WhyNot.PARKED),
    (replace(PARKED, cause="artifact_mismatch"), WhyNot.PARKED, Act.GIVE_UP, Act.RELEASE, WhyNot.PARKED),
    (replace(PARKED, expires_at=ENDED), WhyNot.PARKED, Act.GIVE_UP, WhyNot.ENDED, WhyNot.PARKED),
    (replace(PARKED, is_closing=True), WhyNot.PARKED, Act.GIVE_UP, WhyNot.CLOSING, WhyNot.PARKED),
    (TWICE, WhyNot.SECOND_HANDOFF, WhyNot.SECOND_HANDOFF, WhyNot.SECOND_HANDOFF, Act.NOTE),
    (REFUSED, Act.REPORT, Act.REPORT, Act.RETRY, Act.NOTE),
    (replace(REFUSED, is_asked=False), Act.REPORT, Act.REPORT, Act.RETRY, Act.CLOSE),
    (replace(REFUSED, is_last=False), Act.REPORT, Act.REPORT, WhyNot.LATER_ATTEMPT, Act.NOTE),
    (replace(REFUSED, state=AttemptState.SUBMITTED), Act.REPORT, Act.REPORT, WhyNot.NOT_IN_DOUBT, Act.NOTE),
    (replace(REFUSED, state=AttemptState.FAILED), Act.REPORT, WhyNot.KNOWN, WhyNot.NOT_IN_DOUBT, Act.NOTE),
    (replace(REFUSED, state=AttemptState.DELIVERED), WhyNot.KNOWN, WhyNot.KNOWN, WhyNot.NOT_IN_DOUBT, Act.NOTE),
    (replace(REFUSED, state=AttemptState.QUEUED), WhyNot.NOTHING_LEFT, WhyNot.NOTHING_LEFT, WhyNot.NOT_IN_DOUBT, Act.NOTE),
    (replace(REFUSED, state=AttemptState.CANCELLED), WhyNot.NOTHING_LEFT, WhyNot.NOTHING_LEFT, WhyNot.NOT_IN_DOUBT, Act.NOTE),
]


@pytest.mark.parametrize(("question", "delivered", "failed", "resend", "leave"), TABLE)
def test_each_answer_to_each_kind_of_question(
    question: Question, delivered: Act | WhyNot, failed: Act | WhyNot, resend: Act | WhyNot, leave: Act | WhyNot
) -> None:
    answers = {settlement: act_of(settlement, question, now=NOON) for settlement in Settlement}

    assert answers == {DELIVERED: delivered, FAILED: failed, RESEND: resend, LEAVE: leave}
    assert answers_to(question, now=NOON) == [s for s, act in answers.items() if isinstance(act, Act)]


def test_every_question_has_an_answer() -> None:
    """A question that nobody can settle would stand in the list for ever."""
    assert [row[0] for row in TABLE if not answers_to(row[0], now=NOON)] == []


def test_every_refusal_says_why() -> None:
    assert all(why.words for why in WhyNot)
