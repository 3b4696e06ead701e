"""Group commit: nobody waits for company, nobody is forgotten, and one bad question is one bad answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from app.flows.together import Interrupted, Together
from app.ground.errors import DaybookError
from tests.awaiting import eventually

THREADS = 32


class Desk:
    """Answers each question with its double, notes the pages, and waits at the first where it is told to."""

    def __init__(self, *, holds: bool = False, limit: int = 64) -> None:
        self.pages: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        if not holds:
            self.go_on.set()
        self.together: Together[int, int] = Together(self.run, limit=limit)

    def run(self, page: Sequence[int]) -> list[int]:
        """Answer a page, or fail as 13 and 99 ask for."""
        self.pages.append(list(page))
        self.begun.set()
        assert self.go_on.wait(10)
        if any(n == 13 for n in page):
            raise ValueError("thirteen")
        if any(n == 99 for n in page):
            raise DaybookError("away")
        return [2 * n for n in page]


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS)


def waits(desk: Desk, count: int) -> bool:
    """Say whether so many wait for the next page."""
    return desk.together.waiting_count == count


def while_one_runs(desk: Desk, pool: ThreadPoolExecutor, asked: Sequence[tuple[str, int]]) -> list[Future[int]]:
    """Ask one, and the others, in order, while its page runs."""
    first = pool.submit(desk.together.ask, "a", 1)
    assert desk.begun.wait(10)
    rest = []
    for count, (party, n) in enumerate(asked, start=1):
        rest.append(pool.submit(desk.together.ask, party, n))
        eventually(partial(waits, desk, count), seconds=10)
    desk.go_on.set()
    return [first, *rest]


def test_who_asks_alone_is_answered_alone_and_at_once() -> None:
    desk = Desk()

    assert [desk.together.ask("a", n) for n in (1, 2)] == [2, 4]
    assert desk.pages == [[1], [2]]


def test_what_comes_while_a_page_runs_is_the_next_page_in_order_and_of_one_party(pool: ThreadPoolExecutor) -> None:
    desk = Desk(holds=True)

    answers = while_one_runs(desk, pool, [("a", 2), ("b", 3), ("a", 4), ("b", 5)])

    assert [answer.result(10) for answer in answers] == [2, 4, 6, 8, 10]
    assert desk.pages == [[1], [2, 4], [3, 5]]


def test_a_page_is_no_longer_than_its_limit(pool: ThreadPoolExecutor) -> None:
    desk = Desk(holds=True, limit=2)

    answers = while_one_runs(desk, pool, [("a", n) for n in (2, 3, 4)])

    assert [answer.result(10) for answer in answers] == [2, 4, 6, 8]
    assert desk.pages == [[1], [2, 3], [4]]


def test_a_known_error_is_everybodys_and_an_unforeseen_one_is_its_own_questions(pool: ThreadPoolExecutor) -> None:
    away, bad = Desk(holds=True), Desk(holds=True)

    known = while_one_runs(away, pool, [("a", 2), ("a", 99)])
    unforeseen = while_one_runs(bad, pool, [("a", 2), ("a", 13), ("a", 4)])

    assert [type(answer.exception(10)) for answer in known] == [type(None), DaybookError, DaybookError]
    assert [answer.exception(10) is None for answer in unforeseen] == [True, True, False, True]
    assert bad.pages == [[1], [2, 13, 4], [2], [13], [4]]


def test_a_leader_that_is_ended_leaves_nobody_waiting_and_nobody_with_a_wrong_answer(pool: ThreadPoolExecutor) -> None:
    desk = Desk(holds=True)

    def run(page: Sequence[int]) -> list[int]:
        answers = desk.run(page)
        if len(page) > 1:
            raise SystemExit
        return answers

    desk.together = Together(run)
    _, second, third, later = while_one_runs(desk, pool, [("a", 2), ("a", 3), ("b", 4)])

    ends = {type(second.exception(10)), type(third.exception(10))}
    assert ends == {SystemExit, Interrupted}
    assert later.result(10) == 8


def test_nobody_is_forgotten_and_each_gets_the_answer_to_what_it_asked(pool: ThreadPoolExecutor) -> None:
    desk = Desk()

    answers = [pool.submit(desk.together.ask, n % 3, n + 1000) for n in range(2000)]

    assert [answer.result(30) for answer in answers] == [2 * (n + 1000) for n in range(2000)]
    assert all(len({(n - 1000) % 3 for n in page}) == 1 for page in desk.pages)


def test_those_that_were_answered_together_ask_together_again(pool: ThreadPoolExecutor) -> None:
    """However slow this machine is, a page begins when all of the last one are back, or when nobody comes any more."""
    desk = Desk(holds=True)

    def ask_again(n: int) -> list[int]:
        return [desk.together.ask("a", each) for each in (n, n + 100)]

    first = pool.submit(desk.together.ask, "a", 1)
    assert desk.begun.wait(10)
    rounds = [pool.submit(ask_again, n) for n in range(2, 6)]
    eventually(partial(waits, desk, 4), seconds=10)
    desk.go_on.set()

    assert first.result(10) == 2
    assert [answers.result(10) for answers in rounds] == [[2 * n, 2 * (n + 100)] for n in range(2, 6)]
    assert sorted(n for page in desk.pages[2:] for n in page) == [102, 103, 104, 105]


def test_a_page_waits_for_as_many_as_the_last_one_had(pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.flows.together.COMPANY_SECONDS", 60.0)
    monkeypatch.setattr("app.flows.together.QUIET_SECONDS", 60.0)
    desk = Desk(holds=True)
    for answer in while_one_runs(desk, pool, [("a", 2), ("a", 3)]):
        answer.result(10)

    back = pool.submit(desk.together.ask, "a", 4)
    eventually(partial(waits, desk, 1), seconds=10)
    assert desk.pages == [[1], [2, 3]]
    both = [back, pool.submit(desk.together.ask, "a", 5)]

    assert [answer.result(10) for answer in both] == [8, 10]
    assert desk.pages == [[1], [2, 3], [4, 5]]


def test_who_comes_back_alone_does_not_wait_for_long(pool: ThreadPoolExecutor) -> None:
    desk = Desk(holds=True)
    for answer in while_one_runs(desk, pool, [("a", 2), ("a", 3)]):
        answer.result(10)

    assert desk.together.ask("a", 4) == 8
    assert desk.pages == [[1], [2, 3], [4]]
