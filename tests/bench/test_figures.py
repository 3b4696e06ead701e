"""The figures run, and say what they must; what they come to is no test's business on a shared machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.carrier import arrivals
from bench.figure import Figure
from bench.gauge import Gauge, NothingMeasured, Reading, percentile
from bench.tape import literal
from bench.town import numbers
from tests.e2e.house import ROOT, child_environment

COMPARED = {"accept-single", "accept-batch", "pipeline-pgbench", "pipeline-celery", "receipts"}
GAUGED = {"flatness", "urgent", "footprint", "decision"}
VERBS = {"claim", "poll", "reconcile", "feed", "history", "history of a person", "event detail"}


@pytest.mark.processes
def test_every_comparison_runs_and_is_written(tmp_path: Path) -> None:
    written = take(tmp_path, "accept-single", "accept-batch", "pipeline", "receipts")

    assert set(written) == COMPARED
    assert all(is_complete(figure) for figure in written.values())


@pytest.mark.processes
def test_every_gauge_runs_and_is_written(tmp_path: Path) -> None:
    written = take(tmp_path, "flatness", "urgent", "footprint", "decision")

    assert set(written) == GAUGED
    assert all(is_gauged(gauge) for gauge in written.values())
    assert {name for name, call in written["flatness"]["details"]["2000, plain"].items() if call["buffers"]} == VERBS


def take(folder: Path, *names: str) -> dict[str, Any]:
    """Take these figures, small, and read what was written."""
    chosen = [word for name in names for word in ("--figure", name)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *chosen, "--quick", "--events", "64", "--sizes", "1000,2000", "--results", str(folder)],
        cwd=ROOT,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=420,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("*.json")}


def is_complete(figure: dict[str, Any]) -> bool:
    ratio, rates = figure["ratio"], figure["rates"]
    return bool(
        0 < ratio["min"] <= ratio["median"] <= ratio["max"]
        and len(rates["ours"]) == len(rates["theirs"]) == figure["sizes"]["runs"]
        and figure["machine"]["postgres"]["fsync"] == "on"
    )


def is_gauged(gauge: dict[str, Any]) -> bool:
    limited = [reading for reading in gauge["readings"] if reading["at_most"] is not None]
    return bool(
        limited
        and all(reading["value"] > 0 for reading in limited)
        and gauge["reached"] == all(reading["value"] <= reading["at_most"] for reading in limited)
        and gauge["machine"]["postgres"]["fsync"] == "on"
    )


def test_a_figure_is_the_median_of_the_ratios_of_its_runs() -> None:
    """Each run is beside its own counterpart: what slows the machine slows both."""
    figure = Figure("f", "ours", "theirs", 0.25, None, {}, (10.0, 50.0, 30.0), (100.0, 100.0, 60.0))

    assert figure.ratios == (0.1, 0.5, 0.5)
    assert figure.ratio == 0.5
    assert figure.is_reached


def test_a_gauge_is_reached_when_no_reading_exceeds_its_limit() -> None:
    """What has no limit is reported, and judges nothing."""
    at, over, reported = Reading("a", 5.0, "ms", at_most=5.0), Reading("b", 5.1, "ms", at_most=5.0), Reading("c", 99.0, "ms")

    assert Gauge("g", "ours", "against", [at, reported], {}).is_reached
    assert not Gauge("g", "ours", "against", [at, over, reported], {}).is_reached


def test_a_percentile_is_a_sample_that_was_measured() -> None:
    """Of a hundred samples the 99th is the one that a single sample exceeds; nothing is interpolated."""
    samples = [float(n) for n in range(100, 0, -1)]

    assert [percentile(samples, percent) for percent in (50, 99, 100)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 99) == 7.0
    with pytest.raises(NothingMeasured):
        percentile([], 99)


def test_a_carriers_book_tells_when_each_number_was_first_written_to(tmp_path: Path) -> None:
    """A text that came twice is measured by its first arrival."""
    book = tmp_path / "arrivals"
    book.write_text("10.5 +12015550123\n11.0 +12025550123\n12.0 +12015550123\n")

    assert arrivals(book) == {"+12015550123": 10.5, "+12025550123": 11.0}


def test_pgbench_finds_no_variable_in_a_constant() -> None:
    """It looks for `:name` inside quotes as well, and a time of day is full of them."""
    assert literal("12:30 it's \\") == "E'12\\x3a30 it\\'s \\\\'"


def test_the_figures_write_to_fictitious_numbers_only() -> None:
    assert all(number[5:10] == "55501" for number in numbers())
    assert len(numbers()) >= 20_000
