"""Whose processor time a figure takes: by process of the house, so that a rate can be told from what bounds it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

import psutil

from bench.house import House

DRIVER = "figures"
"""This process and what it starts: the clients."""


@dataclass(slots=True)
class Spending:
    """What each process of a house took, run by run, in microseconds of processor time per event."""

    house: House
    runs: list[dict[str, float]] = field(default_factory=list)

    @contextmanager
    def of(self, count: int) -> Iterator[None]:
        """Read the clocks of all processes around so many events."""
        before = _read(self.house)
        yield
        after = _read(self.house)
        self.runs.append({name: (after[name] - before.get(name, 0.0)) * 1e6 / count for name in after})

    def medians(self) -> Mapping[str, float]:
        """Give each process's median over the runs, whole microseconds."""
        names = self.runs[0] if self.runs else {}
        return {name: round(median(run[name] for run in self.runs)) for name in names}


def _read(house: House) -> dict[str, float]:
    own = sum(os.times()[:4])
    return {name: _seconds(pid) for name, pid in house.pids.items()} | {DRIVER: own}


def _seconds(pid: int) -> float:
    """Add up user and system time of a process, of all that it started, and of those of them that have ended."""
    leader = psutil.Process(pid)
    total = 0.0
    for process in (leader, *leader.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it ended between the two looks: its parent has its time now, or soon
            continue
    return total
