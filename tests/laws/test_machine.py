"""The real verbs beside the model: after every step both stand alike, and at the end the books balance."""

from __future__ import annotations

from functools import partial

import pytest

from tests.conftest import World
from tests.laws.history import search
from tests.laws.real import Houses, run_history

FEW = 100
MANY = 2000
LONGEST = 40


def test_a_few_histories_end_as_the_model_says(world: World, houses: Houses) -> None:
    search(range(FEW), longest=LONGEST, run=partial(run_history, world.engine, houses))


@pytest.mark.chaos
def test_many_histories_end_as_the_model_says(world: World, houses: Houses) -> None:
    search(range(FEW, MANY), longest=LONGEST, run=partial(run_history, world.engine, houses))
