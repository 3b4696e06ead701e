"""A gauge: values of our own beside the limits they must keep, where no counterpart is needed to judge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from app.ground.errors import DaybookError


class NothingMeasured(DaybookError):
    """A figure has no sample to speak of."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One value that was measured."""

    what: str
    value: float
    unit: str
    at_most: float | None = None
    """What it must not exceed; None: it is reported only."""
    goal: float | None = None
    """What it should not exceed."""
    note: str = ""

    @property
    def is_kept(self) -> bool:
        """Say whether the value keeps its limit."""
        return self.at_most is None or self.value <= self.at_most


@dataclass(frozen=True, slots=True)
class Gauge:
    """What was measured, its values, and what lies behind them."""

    name: str
    ours: str
    against: str
    readings: Sequence[Reading]
    sizes: Mapping[str, Any]
    details: Mapping[str, Any] = field(default_factory=dict)
    """For programs and for whoever asks why: every sample's summary, every statement, every plan."""

    @property
    def is_reached(self) -> bool:
        """Say whether every limit is kept."""
        return all(reading.is_kept for reading in self.readings)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Give the smallest sample that so many percent of them do not exceed."""
    if not samples:
        raise NothingMeasured("there is no sample to rank")
    return sorted(samples)[max(0, ceil(len(samples) * percent / 100) - 1)]
