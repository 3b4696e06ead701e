"""Ask together what several threads ask at once: one transaction for all of them, and hardly any waiting for company."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar, cast

from app.ground.errors import DaybookError

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

PAGE: Final = 64
COMPANY_SECONDS: Final = 0.02
"""How long after a page those that it answered may take to ask again. Who asks alone never waits."""
QUIET_SECONDS: Final = 0.004
"""After so long without anybody, nobody else is waited for."""


class Interrupted(DaybookError):
    """The thread that led a page was ended in the middle of it: nobody knows what was written."""


@dataclass(slots=True, eq=False)
class _Seat(Generic[Asked, Answer]):
    """One thread that waits for its answer, or for its turn to lead."""

    party: object
    asked: Asked
    turn: threading.Event = field(default_factory=threading.Event)
    is_answered: bool = False
    answer: Answer | None = None
    error: Exception | None = field(default_factory=Interrupted)

    def take(self) -> Answer:
        if self.error is not None:
            raise self.error
        return cast("Answer", self.answer)


class Together(Generic[Asked, Answer]):
    """Group commit: whoever finds nobody at work begins at once; what comes meanwhile is the next page.

    Callers that were answered together ask again together, within a moment: the next page waits that moment
    for as many as the last one had. Else the first to be back would go alone, and the others behind it, and
    each page costs much the same whatever is in it (Postgres's commit_delay and commit_siblings do the same).

    `run` takes what one party asked, in the order it came, and answers in the same order. It raises for
    all of them. What it did not foresee (no DaybookError) may be the fault of one: then each is run
    alone. As long as threads ask one by one, this is the same as calling `run` with a list of one.
    """

    def __init__(self, run: Callable[[Sequence[Asked]], Sequence[Answer]], *, limit: int = PAGE) -> None:
        self._run = run
        self._limit = limit
        self._lock = threading.Condition(threading.Lock())
        self._waiting: deque[_Seat[Asked, Answer]] = deque()
        self._is_led = False
        self._last_count, self._last_ended_at = 0, 0.0

    @property
    def waiting_count(self) -> int:
        """How many threads wait for a page that has not begun."""
        with self._lock:
            return len(self._waiting)

    def ask(self, party: object, asked: Asked) -> Answer:
        """Give the answer to one question; only what the same party asks runs together."""
        seat: _Seat[Asked, Answer] = _Seat(party, asked)
        with self._lock:
            self._waiting.append(seat)
            leads, self._is_led = not self._is_led, True
            self._lock.notify()
        if not leads:
            seat.turn.wait()
        if not seat.is_answered:
            self._lead()
        return seat.take()

    def _lead(self) -> None:
        """Run the page of whoever waits longest, which is the caller, and hand the lead on."""
        with self._lock:
            self._await_company()
            party = self._waiting[0].party
            page = [seat for seat in self._waiting if seat.party == party][: self._limit]
            self._waiting = deque(seat for seat in self._waiting if seat not in page)
            self._last_count = len(page)
        try:
            self._answer(page)
        finally:
            with self._lock:
                self._is_led = bool(self._waiting)
                self._last_ended_at = time.monotonic()
                following = self._waiting[0] if self._waiting else None
            for seat in page:
                seat.is_answered = True
                seat.turn.set()
            if following is not None:
                following.turn.set()

    def _await_company(self) -> None:
        wanted = min(self._last_count, self._limit)
        until = self._last_ended_at + COMPANY_SECONDS
        while len(self._waiting) < wanted and (left := until - time.monotonic()) > 0:
            if not self._lock.wait(min(left, QUIET_SECONDS)):
                break

    def _answer(self, page: Sequence[_Seat[Asked, Answer]]) -> None:
        try:
            answers = self._run([seat.asked for seat in page])
        except DaybookError as error:
            for seat in page:
                seat.error = error
        except Exception as error:  # noqa: BLE001 - handed to whoever asked
            if len(page) == 1:
                page[0].error = error
                return
            for seat in page:
                self._answer([seat])
        else:
            for seat, answer in zip(page, answers, strict=True):
                seat.answer, seat.error = answer, None
