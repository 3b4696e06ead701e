"""What is said of the figures: a table for people, JSON for programs, and the machine they are true of."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Final

import redis
from rich.console import Console
from rich.table import Table

from bench.figure import Figure
from bench.gauge import Gauge
from bench.house import House

PACKAGES: Final = ("celery", "kombu", "psycopg", "sqlalchemy", "granian", "flask", "redis")
SETTINGS: Final = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size")
WIDTH: Final = 150


def machine(house: House) -> dict[str, Any]:
    """Describe what the figures were taken on."""
    with house.connect() as connection:
        postgres = {name: str(connection.execute("SELECT current_setting(%s)", [name]).fetchone()[0]) for name in SETTINGS}  # type: ignore[index]  # a setting has one row
    with redis.Redis.from_url(house.redis_url) as client:
        info = client.info("server")
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
        "postgres": postgres,
        "valkey": str(info.get("valkey_version", info.get("redis_version"))),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def written(figure: Figure | Gauge, described: Mapping[str, Any], *, quick: bool) -> dict[str, Any]:
    """Lay a figure out as JSON: every run, not only the median."""
    laid_out = _compared(figure) if isinstance(figure, Figure) else _gauged(figure)
    return {
        "name": figure.name,
        "ours": figure.ours,
        "against": figure.against,
        "quick": quick,
        "reached": figure.is_reached,
        **laid_out,
        "load_after": round(os.getloadavg()[0], 2),
        "machine": dict(described),
    }


def _compared(figure: Figure) -> dict[str, Any]:
    return {
        "must_reach": figure.floor,
        "goal": figure.goal,
        "ratio": {"min": min(figure.ratios), "median": figure.ratio, "max": max(figure.ratios)},
        "rates": {"ours": list(figure.our_rates), "theirs": list(figure.their_rates)},
        "sizes": dict(figure.sizes),
        "notes": dict(figure.notes),
        "cpu_us_per_event": {"ours": dict(figure.our_cpu), "theirs": dict(figure.their_cpu)},
    }


def _gauged(gauge: Gauge) -> dict[str, Any]:
    return {
        "readings": [asdict(reading) | {"kept": reading.is_kept} for reading in gauge.readings],
        "sizes": dict(gauge.sizes),
        "details": dict(gauge.details),
    }


def print_tables(figures: Sequence[Figure | Gauge], described: Mapping[str, Any], *, quick: bool) -> None:
    """Print the figures, and what they are true of."""
    console = Console(width=WIDTH)
    if compared := [figure for figure in figures if isinstance(figure, Figure)]:
        console.print(_ratios(compared))
        console.print(_processor_time(compared))
    for gauge in figures:
        if isinstance(gauge, Gauge):
            console.print(_values(gauge))
    postgres = described["postgres"]
    console.print(
        f"{described['cores']} cores ({described['processor']}), Python {described['python']}, "
        f"Postgres {postgres['server_version']} (fsync {postgres['fsync']}), Valkey {described['valkey']}; "
        f"load before {described['load_before']}"
    )
    if quick:
        console.print("A quick run: it shows that the figures run, and measures nothing.")


def _ratios(figures: Sequence[Figure]) -> Table:
    table = Table("figure", "against", "ours /s", "theirs /s", "ratio min", "median", "max", "must reach", "")
    for f in figures:
        rates = (f"{median(f.our_rates):,.0f}", f"{median(f.their_rates):,.0f}")
        ratios = (f"{min(f.ratios):.2f}", f"{f.ratio:.2f}", f"{max(f.ratios):.2f}")
        wanted = f"{f.floor:.2f}" + (f" (goal {f.goal:.2f})" if f.goal else "")
        table.add_row(f.name, f.against, *rates, *ratios, wanted, "ok" if f.is_reached else "short")
    return table


def _processor_time(figures: Sequence[Figure]) -> Table:
    table = Table("figure", "whose", "µs of processor time per event", "all")
    for f in figures:
        for whose, cpu in (("ours", f.our_cpu), ("theirs", f.their_cpu)):
            if cpu:
                table.add_row(
                    f.name, whose, ", ".join(f"{name} {us:,.0f}" for name, us in cpu.items()), f"{sum(cpu.values()):,.0f}"
                )
    return table


def _values(gauge: Gauge) -> Table:
    table = Table("value", "measured", "at most", "", "note", title=f"{gauge.name}: {gauge.ours}, against {gauge.against}")
    for r in gauge.readings:
        wanted = "" if r.at_most is None else f"{r.at_most:,g}"
        wanted += f" (goal {r.goal:,g})" if r.goal is not None else ""
        kept = "" if r.at_most is None else "ok" if r.is_kept else "over"
        table.add_row(r.what, f"{r.value:,g} {r.unit}", wanted.strip(), kept, r.note)
    return table
