"""The figures run, and say what they must; what they come to is no test's business on a shared machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.figure import Figure
from bench.tape import literal
from bench.town import numbers
from tests.e2e.house import ROOT, child_environment

FIGURES = {"accept-single", "accept-batch", "pipeline-pgbench", "pipeline-celery", "receipts"}


@pytest.mark.processes
def test_every_figure_runs_and_is_written(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--quick", "--events", "64", "--results", str(tmp_path)],
        cwd=ROOT,
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    written = {file.stem: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    assert set(written) == FIGURES
    assert all(is_complete(figure) for figure in written.values())


def is_complete(figure: dict[str, Any]) -> bool:
    ratio, rates = figure["ratio"], figure["rates"]
    return bool(
        0 < ratio["min"] <= ratio["median"] <= ratio["max"]
        and len(rates["ours"]) == len(rates["theirs"]) == figure["sizes"]["runs"]
        and figure["machine"]["postgres"]["fsync"] == "on"
    )


def test_a_figure_is_the_median_of_the_ratios_of_its_runs() -> None:
    """Each run is beside its own counterpart: what slows the machine slows both."""
    figure = Figure("f", "ours", "theirs", 0.25, None, {}, (10.0, 50.0, 30.0), (100.0, 100.0, 60.0))

    assert figure.ratios == (0.1, 0.5, 0.5)
    assert figure.ratio == 0.5
    assert figure.is_reached


def test_pgbench_finds_no_variable_in_a_constant() -> None:
    """It looks for `:name` inside quotes as well, and a time of day is full of them."""
    assert literal("12:30 it's \\") == "E'12\\x3a30 it\\'s \\\\'"


def test_the_figures_write_to_fictitious_numbers_only() -> None:
    assert all(number[5:10] == "55501" for number in numbers())
    assert len(numbers()) >= 20_000
