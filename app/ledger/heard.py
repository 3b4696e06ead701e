"""What attempts were told in one transaction, joined: their new states, and what is to be written of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from app.ground.ids import AttemptId
from app.ledger.books import Books
from app.ledger.routes import Route
from app.ledger.state import Application
from app.ledger.transition import waiting_state
from policy.checks import next_check
from policy.states import PUBLIC, AttemptState, Judgement, PublicState
from policy.words import ErrorClass

ASKED_TWICE: Final = 2
"""Look-ups that find nothing mean something from the second on."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Everything one attempt was told in this transaction, joined."""

    attempt: Any
    """The row as it was locked."""
    state: AttemptState
    taken: bool
    told: tuple[Any, ...] = ()
    applied: tuple[Any, ...] = ()
    error_class: ErrorClass | None = None
    error_code: str | None = None

    def hear(self, told: Any, judgement: Judgement) -> Heard:  # noqa: ANN401 - a Told; observe imports this module
        """Join one more report in."""
        applies = judgement is Judgement.APPLIED
        return replace(
            self,
            state=told.state if applies else self.state,
            taken=self.taken or has_it(told),
            told=(*self.told, told),
            applied=(*self.applied, told) if applies else self.applied,
            error_class=told.error_class or self.error_class,
            error_code=told.error_code or self.error_code,
        )

    @property
    def must_write(self) -> bool:
        """Whether anything about the attempt's row changed."""
        row = self.attempt
        classes = self.error_class not in {None, row.error_class} or self.error_code not in {None, row.error_code}
        return self.state != row.state or self.taken != row.taken or classes

    def application(self, routes: Mapping[UUID, Route], *, closing: bool, now: datetime) -> Application:
        """Say what is to be written, and when to ask the carrier again; `closing`: nobody waits for the outcome any more."""
        route = routes.get(self.attempt.route_id)
        horizon_at = self.attempt.horizon_at or now + (route.horizon_for if route else timedelta(hours=24))
        return Application(
            id=AttemptId(self.attempt.id),
            from_state=AttemptState(self.attempt.state),
            state=self.state,
            taken=self.taken,
            next_check_at=self._next_check(None if closing else route, horizon_at, now),
            horizon_at=horizon_at,
            error_class=self.error_class,
            error_code=self.error_code,
        )

    def _next_check(self, route: Route | None, horizon_at: datetime, now: datetime) -> datetime | None:
        if self.state in {AttemptState.FAILED, AttemptState.DELIVERED}:
            return None
        if self.state == self.attempt.state:
            return self.attempt.next_check_at  # type: ignore[no-any-return]  # a row's timestamp
        if self.state is AttemptState.UNKNOWN and now >= horizon_at:
            return None
        if route is None or not (route.capabilities.polls or route.capabilities.looks_up):
            return horizon_at
        return next_check(0, first_after=route.first_check_after, horizon_at=horizon_at, jitter=random.random(), now=now)  # noqa: S311


def may_arrive(told: Any) -> bool:  # noqa: ANN401 - a Told
    """Say whether a report means that the message may still arrive, or did: a repeated failure does not."""
    return told.state in {AttemptState.SUBMITTED, AttemptState.DELIVERED}


def has_it(told: Any) -> bool:  # noqa: ANN401 - a Told
    """Say whether a report means that the carrier has, or had, the message."""
    return told.state in {AttemptState.SUBMITTED, AttemptState.DELIVERED} or told.remote_id is not None


@dataclass(frozen=True, slots=True)
class Standing:
    """An attempt as it is after what was heard; what `was_taken` looks at."""

    id: UUID
    intent_id: UUID
    ordinal: int
    state: str
    taken: bool
    error_class: str | None
    is_ruled_out: bool
    """A conclusive look-up, asked twice, did not find it."""

    @classmethod
    def of(cls, a: Any, h: Heard | None = None) -> Standing:  # noqa: ANN401 - a locked row
        """Look at an attempt's row through what was heard."""
        ruled_out = a.not_found_count >= ASKED_TWICE
        if h is None:
            return cls(a.id, a.intent_id, a.ordinal, a.state, a.taken, a.error_class, ruled_out)
        return cls(a.id, a.intent_id, a.ordinal, h.state, h.taken, h.error_class or a.error_class, ruled_out)


def as_heard(books: Books, heard: Mapping[UUID, Heard]) -> Books:
    """Give the books with each attempt as it stands after what was heard."""
    attempts = {i: Standing.of(a, heard[i]) if i in heard else a for i, a in books.attempts.items()}
    return Books(books.intents, attempts, books.outbox)


def contacted_twice(attempts: Sequence[Standing]) -> bool:
    """Say whether one attempt arrived and another may have as well, whatever was heard first."""
    # A failure before the attempt that arrived is why that one was made, and no second contact; so is
    # one in doubt, which a rule or a person let it follow, as long as nobody says that it was taken.
    return any(
        (other.taken or (other.state == AttemptState.UNKNOWN and not other.is_ruled_out and other.ordinal > arrived.ordinal))
        and not (other.state == AttemptState.FAILED and other.ordinal < arrived.ordinal)
        for arrived in attempts
        if arrived.state == AttemptState.DELIVERED
        for other in attempts
        if other.id != arrived.id
    )


def public_before(attempt: Any, intent: Any) -> PublicState:  # noqa: ANN401 - locked rows
    """Say what the public read about an attempt before this transaction."""
    state_ = AttemptState(attempt.state)
    if state_ in {AttemptState.QUEUED, AttemptState.PREPARED}:
        return waiting_state(intent)
    return PUBLIC[state_]
