"""The rules in force, and how often each has matched and applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from simulator.chance import draw
from simulator.rules import Match, Occasion, Rule, Then

DEFAULT = Then()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rule may look at."""

    on: Occasion
    to: str
    body: str = ""
    nth: int = 0


class Chosen(NamedTuple):
    """What happens, and the index of the rule that says so; None where no rule does."""

    then: Then
    rule: int | None


class Script:
    """Choose what happens to a request: the first rule that matches and is not used up."""

    def __init__(self, rules: Sequence[Rule], *, seed: int) -> None:
        self.rules = tuple(rules)
        self._seed = seed
        self._matched = [0] * len(self.rules)
        self._applied = [0] * len(self.rules)

    def choose(self, asked: Asked) -> Chosen:
        """Say what happens to a request, and count it."""
        for index, rule in enumerate(self.rules):
            if self._applies(index, rule, asked):
                self._applied[index] += 1
                return Chosen(rule.then, index)
        return Chosen(DEFAULT, None)

    def _applies(self, index: int, rule: Rule, asked: Asked) -> bool:
        if rule.times is not None and self._applied[index] >= rule.times:
            return False
        if not is_match(rule.match, asked):
            return False
        self._matched[index] += 1
        if rule.match.every is not None and self._matched[index] % rule.match.every:
            return False
        # A send is drawn for by number and turn, so that racing senders to other numbers change nothing.
        turn = asked.nth or self._matched[index]
        return rule.match.probability is None or draw(self._seed, "rule", index, asked.to, turn) < rule.match.probability


def is_match(match: Match, asked: Asked) -> bool:
    """Say whether a request is of the kind a rule is for, counts and chance aside."""
    return (
        match.on is asked.on
        and (match.to is None or _is_number_in(match.to, asked.to))
        and (match.body_contains is None or match.body_contains in asked.body)
        and (match.nth is None or match.nth == asked.nth)
    )


def _is_number_in(pattern: str, to: str) -> bool:
    return to.startswith(pattern[:-1]) if pattern.endswith("*") else to == pattern
