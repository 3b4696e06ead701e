"""The design against itself: a hundred thousand short histories of the model keep every invariant."""

from __future__ import annotations

import pytest

from tests.laws.history import play, search

FEW = 10_000
MANY = 100_000
LONGEST = 40


def test_histories_of_the_model_keep_the_invariants() -> None:
    search(range(FEW), longest=LONGEST, run=play)


@pytest.mark.chaos
def test_a_hundred_thousand_histories_of_the_model_keep_the_invariants() -> None:
    search(range(FEW, MANY), longest=LONGEST, run=play)
