"""Reports about several attempts of one intent, in any order, end alike: on the model, and on the real books."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from random import Random
from typing import Final

import pytest

from tests.conftest import World
from tests.laws.history import ANSWERS, TOLD, WAITS, Beside, Player, Said, Step
from tests.laws.model import Name, Report, Rules
from tests.laws.real import Houses, Real, rolled_back, standing

FEW = 1
MANY = 6
SEED = 1
FIRST, SECOND = (0, 1), (0, 2)
SUBMITTED, UNKNOWN, TRANSIENT = 0, 2, 6
LATER = WAITS.index(700)

# How an intent came to have two attempts that were both handed off.
PASTS: Final[Mapping[str, tuple[Rules, tuple[Step, ...]]]] = {
    "refused, then tried again": (
        Rules("review", "review", asks=False, waited="resend"),
        (Step("write", 0, TRANSIENT), Step("answer", 0, 0), Step("wait", LATER, 0)),
    ),
    "in doubt, not found twice, then tried again": (
        Rules("resend", "review"),
        (
            Step("write", 0, UNKNOWN),
            Step("answer", 0, 0),
            Step("wait", LATER, 0),
            Step("poll", 0, len(TOLD)),  # asked, not found
            Step("wait", LATER, 0),
            Step("poll", 0, len(TOLD)),
        ),
    ),
}
START: Final = (Step("accept", 0, 0), Step("dispatch", 0, 0), Step("prepare", 0, 0))
AGAIN: Final = (Step("dispatch", 0, 0), Step("prepare", 0, 0), Step("write", 0, UNKNOWN))
# Without a refusal that may be tried again: a third attempt that one order makes and another does not is no contradiction.
REPORTS: Final = tuple(
    (name, said) for name in (FIRST, SECOND) for said in (*TOLD, ANSWERS[UNKNOWN]) if said[1] not in {"transient", "opted_out"}
)
Choice = tuple[tuple[Name, Said], ...]


def choices(count: int, *, seed: int) -> list[Choice]:
    """Choose sets of four reports, about both attempts."""
    both = [c for c in combinations(sorted(set(REPORTS), key=str), 4) if {n for n, _ in c} == {FIRST, SECOND}]
    return Random(seed).sample(both, count)  # noqa: S311 - it guards nothing


def end_of(past: str, reports: Choice, beside: Beside | None = None) -> dict[str, object]:
    """Play a past and then these reports; give where the intent and its attempts stand."""
    player = Player(PASTS[past][0], beside)
    for step in (*START, *PASTS[past][1], *AGAIN):
        assert player.step(step) == []
    assert [a.prepared for a in player.model.attempts] == [1, 1]
    for number, (name, (state, error, reason, remote, retry_after)) in enumerate(reports, start=1000):
        player.hear(name, Report(number, state, error, reason, remote, retry_after))
    if beside is not None:
        assert beside.differences(player.model) == []
    end = {
        what: _without_class(what, where)
        for what, where in standing(player.model).items()
        if what not in {"slot", "mark", "contacted"}
    }
    asked = sorted(str(where) for what, where in end.items() if what.startswith("review"))
    # The question is the intent's; which of two that arrived it hangs on says only which was heard first.
    return {what: where for what, where in end.items() if not what.startswith("review")} | {"asked": asked}


def _without_class(what: str, where: object) -> object:
    """Leave out why: the class of the last report stands, and times follow from it. What it came to is the law.

    Left out as well is until when silence is waited for: a word that came first ends it before it begins.
    """
    assert isinstance(where, tuple | str)
    if what.startswith("intent"):
        return where[0], where[2]
    return where[:2] if what.startswith(("attempt", "made")) else where


def ends(past: str, choice: Choice) -> Sequence[dict[str, object]]:
    found: list[dict[str, object]] = []
    for order in permutations(choice):
        end = end_of(past, order)
        if end not in found:
            found.append(end)
    return found


def real_ends(world: World, houses: Houses, past: str, choice: Choice) -> Sequence[dict[str, object]]:
    found: list[dict[str, object]] = []
    for order in permutations(choice):
        with rolled_back(world.engine) as session:
            real = Real(session, houses[PASTS[past][0]])
            end = end_of(past, order, real)
            assert real.audit() == []
        if end not in found:
            found.append(end)
    return found


@pytest.mark.parametrize("past", PASTS)
def test_the_model_ends_alike_in_any_order(past: str) -> None:
    assert [c for c in choices(400, seed=SEED) if len(ends(past, c)) > 1] == []


@pytest.mark.parametrize("past", PASTS)
def test_the_real_books_end_alike_in_any_order(world: World, houses: Houses, past: str) -> None:
    assert [c for c in choices(FEW, seed=SEED) if len(real_ends(world, houses, past, c)) > 1] == []


@pytest.mark.chaos
@pytest.mark.parametrize("past", PASTS)
def test_more_reports_end_alike_on_the_real_books(world: World, houses: Houses, past: str) -> None:
    assert [c for c in choices(MANY, seed=SEED + 1) if len(real_ends(world, houses, past, c)) > 1] == []
