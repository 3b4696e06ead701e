"""What statements cost inside the server: auto_explain writes the plan of each one that a verb really runs.

Nothing is copied and nothing runs twice: the plans are those of the application's own statements, with
their own parameters, in the connections and transactions that it opened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from app.ground.db import engine
from bench.house import House, sql

# Rows and buffers are counted, nodes are not clocked: asking the clock at each row costs more than the row.
# Parameters stay out of the log, since some are personal values.
SETTINGS: Final = {
    "session_preload_libraries": "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_buffers": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_parameter_max_length": "0",
}
# An entry's first line, and its plan on lines that begin with a tab.
ENTRY: Final = re.compile(r"duration: ([0-9.]+) ms  plan:\n((?:\t.*\n)+)")


@dataclass(frozen=True, slots=True)
class Ran:
    """One statement that ran."""

    statement: str
    milliseconds: float
    plan: Mapping[str, Any]

    @property
    def buffers(self) -> int:
        """Give the shared buffers that it touched, found in memory or not."""
        return int(self.plan.get("Shared Hit Blocks", 0)) + int(self.plan.get("Shared Read Blocks", 0))


@dataclass(slots=True)
class Cost:
    """What one call of a verb ran in the server."""

    ran: list[Ran] = field(default_factory=list)

    @property
    def buffers(self) -> int:
        """Give the shared buffers that all its statements touched."""
        return sum(one.buffers for one in self.ran)

    @property
    def milliseconds(self) -> float:
        """Give the time that the server spent in them."""
        return sum(one.milliseconds for one in self.ran)


@contextmanager
def explained(house: House) -> Iterator[Path]:
    """Let every new connection write its plans until the block ends; give the log that they are in."""
    with house.connect() as connection:
        for name, value in SETTINGS.items():
            connection.execute(sql(f"ALTER DATABASE postgres SET {name} = '{value}'"))
    engine().dispose()  # connections read the settings once, as they are made
    try:
        yield house.folder / "postgres" / "postgres.log"
    finally:
        with house.connect() as connection:
            for name in SETTINGS:
                connection.execute(sql(f"ALTER DATABASE postgres RESET {name}"))
        engine().dispose()


@contextmanager
def watched(log: Path) -> Iterator[Cost]:
    """Note what runs in the block; the cost is complete when it ends, since a plan is written before its answer."""
    cost = Cost()
    start = log.stat().st_size
    yield cost
    with log.open("rb") as file:
        file.seek(start)
        told = file.read().decode(errors="replace")
    for duration, indented in ENTRY.findall(told):
        explanation = json.loads(indented.replace("\n\t", "\n"))
        cost.ran.append(Ran(" ".join(explanation["Query Text"].split()), float(duration), explanation["Plan"]))
