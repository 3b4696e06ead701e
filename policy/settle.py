"""What a person may answer to an open question, and what the answer does: a table, without the books."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from policy.states import AttemptState, Judgement, judge
from policy.words import Settlement

SECOND_HANDOFF: Final = "second_handoff"
OBSERVATION_REFUSED: Final = "observation_refused"


class Act(StrEnum):
    """What an answer does to the books."""

    REPORT = "report"
    """An observation by the operator: the state climbs, the consequences follow."""
    RELEASE = "release"
    """A parked row is due again."""
    GIVE_UP = "give_up"
    """A parked row is closed; nothing of it ever left."""
    RETRY = "retry"
    """Another attempt, although nobody knows of the one before."""
    CLOSE = "close"
    """The intent closes, and its state stays unknown."""
    NOTE = "note"
    """The question is closed, and nothing else changes."""


class WhyNot(StrEnum):
    """Why a question cannot be settled so."""

    PARKED = "parked"
    SECOND_HANDOFF = "second_handoff"
    NOTHING_LEFT = "nothing_left"
    KNOWN = "known"
    CLOSED = "closed"
    CLOSING = "closing"
    ENDED = "ended"
    LATER_ATTEMPT = "later_attempt"
    NOT_IN_DOUBT = "not_in_doubt"

    @property
    def words(self) -> str:
        """Say it to the operator."""
        return WORDS[self]


WORDS: Final = {
    WhyNot.PARKED: "the row is parked, and nothing of it left: `resend` lets it go, `failed` gives it up",
    WhyNot.SECOND_HANDOFF: "two attempts left and one arrived; that can only be noted: `leave`",
    WhyNot.NOTHING_LEFT: "nothing of this attempt was handed off; cancel its event instead",
    WhyNot.KNOWN: "as much, or more, is known of this attempt already: `leave`",
    WhyNot.CLOSED: "the intent is closed; post a new event if it still matters",
    WhyNot.CLOSING: "somebody asked to close the intent, so no attempt follows",
    WhyNot.ENDED: "the event's time is over, so no attempt follows",
    WhyNot.LATER_ATTEMPT: "a later attempt of the intent exists already",
    WhyNot.NOT_IN_DOUBT: "the attempt is not in doubt: wait for its outcome",
}


@dataclass(frozen=True, slots=True)
class Question:
    """An open review, with what its answer depends on."""

    cause: str
    state: AttemptState
    is_parked: bool
    is_last: bool
    """No later attempt of the intent exists."""
    is_asked: bool
    """The carrier is, or will be, asked about the attempt."""
    is_open: bool
    is_closing: bool
    expires_at: datetime


def act_of(settlement: Settlement, question: Question, *, now: datetime) -> Act | WhyNot:
    """Say what settling a question so does, or why it cannot be settled so."""
    if settlement is Settlement.LEAVE:
        return _leave(question)
    if question.cause == SECOND_HANDOFF:
        return WhyNot.SECOND_HANDOFF
    if settlement is Settlement.RESEND:
        return _resend(question, now)
    if question.is_parked:
        return Act.GIVE_UP if settlement is Settlement.FAILED else WhyNot.PARKED
    if question.state not in HANDED_OFF:
        return WhyNot.NOTHING_LEFT
    told = AttemptState(settlement.value)
    return Act.REPORT if judge(question.state, told) is Judgement.APPLIED else WhyNot.KNOWN


HANDED_OFF: Final = frozenset(
    {AttemptState.PREPARED, AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.FAILED, AttemptState.DELIVERED}
)


def answers_to(question: Question, *, now: datetime) -> list[Settlement]:
    """List how a question can be settled."""
    return [settlement for settlement in Settlement if isinstance(act_of(settlement, question, now=now), Act)]


def _leave(question: Question) -> Act | WhyNot:
    if question.is_parked:
        return WhyNot.PARKED
    in_doubt = question.is_open and question.is_last and question.state is AttemptState.UNKNOWN
    # A report that the ledger refused says nothing about the attempt: while the carrier is asked, that goes on.
    if in_doubt and (question.cause != OBSERVATION_REFUSED or not question.is_asked):
        return Act.CLOSE
    return Act.NOTE


def _resend(question: Question, now: datetime) -> Act | WhyNot:
    refusals = (
        (not question.is_open, WhyNot.CLOSED),
        (question.is_closing, WhyNot.CLOSING),
        (question.expires_at <= now, WhyNot.ENDED),
        (not question.is_last, WhyNot.LATER_ATTEMPT),
        (not question.is_parked and question.state is not AttemptState.UNKNOWN, WhyNot.NOT_IN_DOUBT),
    )
    for holds, why in refusals:
        if holds:
            return why
    return Act.RELEASE if question.is_parked else Act.RETRY
