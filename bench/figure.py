"""A figure: our rate beside a counterpart's, run by run in one sitting; what is said of it is the ratio."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median

from bench.house import House
from bench.tape import Tape
from bench.town import Town


@dataclass(frozen=True, slots=True)
class Figure:
    """What was measured, against what, and every run of both."""

    name: str
    ours: str
    against: str
    floor: float
    """The ratio that must be reached."""
    goal: float | None
    sizes: Mapping[str, int]
    our_rates: tuple[float, ...]
    """Events (or receipts) per second, run by run."""
    their_rates: tuple[float, ...]
    notes: Mapping[str, float] = field(default_factory=dict)
    our_cpu: Mapping[str, float] = field(default_factory=dict)
    """Microseconds of processor time per event, by process."""
    their_cpu: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Give each run's ratio, of two rates measured one after the other."""
        return tuple(ours / theirs for ours, theirs in zip(self.our_rates, self.their_rates, strict=True))

    @property
    def ratio(self) -> float:
        """Give the median ratio."""
        return median(self.ratios)

    @property
    def is_reached(self) -> bool:
        """Say whether the median reaches the floor."""
        return self.ratio >= self.floor


@dataclass(frozen=True, slots=True)
class Sitting:
    """What every figure of one sitting stands on."""

    house: House
    tape: Tape
    plain: Town
    """Its texts go to the null carrier."""
    signing: Town
    """Its route's receipts are signed."""
    runs: int


def weighed(house: House, *, ours: int, theirs: int) -> Mapping[str, float]:
    """Say how heavy an event is on both sides, as the last run left them: the counterpart must write what we write."""
    return {
        "our_bytes_per_event": round(house.weigh(scratch=False) / ours),
        "their_bytes_per_event": round(house.weigh(scratch=True) / theirs),
    }


Measure = Callable[[], float]


def interleaved(runs: int, *measures: Measure) -> list[tuple[float, ...]]:
    """Measure in turn, the other way round every second time; give each measure's rates."""
    rates: dict[int, list[float]] = {n: [] for n in range(len(measures))}
    for run in range(runs):
        turn = list(enumerate(measures))
        for n, measure in turn if run % 2 == 0 else reversed(turn):
            rates[n].append(measure())
    return [tuple(rates[n]) for n in range(len(measures))]
