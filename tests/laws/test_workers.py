"""Every interleaving of two workers, one intent and one crash: at most one handoff per attempt, and nothing lost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from random import Random

import pytest

from tests.conftest import World
from tests.laws.real import Houses, Real, rolled_back
from tests.laws.workers import Schedule, Workers, schedules

ALL = 70 * 9 * 19 * 3 * 2
EVERY = 11
FEW = 20
MANY = 400
SEED = 1


def broken_on_the_model(some: Iterable[Schedule]) -> list[tuple[Schedule, list[str]]]:
    return [(schedule, breaches) for schedule in some if (breaches := Workers(schedule).run())]


def test_interleavings_of_the_model_hand_off_once_and_lose_nothing() -> None:
    assert broken_on_the_model(islice(schedules(), 0, None, EVERY)) == []


@pytest.mark.chaos
def test_no_interleaving_of_the_model_hands_off_twice_or_loses_anything() -> None:
    assert broken_on_the_model(schedules()) == []


def test_every_interleaving_is_there_once() -> None:
    assert len(set(schedules())) == ALL


def some_of(seed: int, count: int) -> list[Schedule]:
    return Random(seed).sample(list(schedules()), count)  # noqa: S311 - it guards nothing


def broken(world: World, houses: Houses, some: Sequence[Schedule]) -> list[tuple[Schedule, list[str]]]:
    found = []
    for schedule in some:
        with rolled_back(world.engine) as session:
            workers = Workers(schedule)
            real = Real(session, houses[workers.player.model.rules])
            workers.player.beside = real
            breaches = workers.run() or [b.code for b in real.audit()]
            if breaches:
                found.append((schedule, breaches))
    return found


def test_a_few_interleavings_end_alike_on_the_real_books(world: World, houses: Houses) -> None:
    assert broken(world, houses, some_of(SEED, FEW)) == []


@pytest.mark.chaos
def test_many_interleavings_end_alike_on_the_real_books(world: World, houses: Houses) -> None:
    assert broken(world, houses, some_of(SEED + 1, MANY)) == []
