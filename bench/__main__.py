"""`python -m bench`: measure, print a table, and write every run as JSON beside it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import structlog

from bench.figure import Figure, Sitting
from bench.house import open_house
from bench.report import machine, print_table, written
from bench.tape import record
from bench.town import settle

RESULTS: Final = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True, slots=True)
class Size:
    """How many events a figure takes, in full and quickly."""

    full: int
    quick: int


SIZES: Final[Mapping[str, Size]] = {
    "accept-single": Size(2_000, 160),
    "accept-batch": Size(10_000, 1_000),
    "pipeline": Size(20_000, 320),
    "receipts": Size(1_600, 160),
}
# Enough for a rate: plain Celery does the same for each message, however many there are.
MESSAGES: Final = Size(4_000, 200)
RUNS: Final = Size(5, 1)


@click.command()
@click.option("--figure", "names", multiple=True, type=click.Choice(list(SIZES)), help="Only this one; may be repeated.")
@click.option("--events", type=click.IntRange(min=16), help="Events per run, instead of each figure's own number.")
@click.option("--runs", type=click.IntRange(min=1), help="Runs of each side; the median is the figure.")
@click.option("--quick", is_flag=True, help="One small run: shows that it works, measures nothing.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Where the JSON goes.")
def main(names: tuple[str, ...], events: int | None, runs: int | None, *, quick: bool, results: Path) -> None:
    """Measure Daybook beside the bare database and the bare queue, as ratios of one sitting."""
    results.mkdir(parents=True, exist_ok=True)
    # What this process does to load the books is not what is measured; the house keeps its own logs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures: list[Figure] = []
    with open_house() as house:
        plain, signing = settle("plain", carrier="null"), settle("signing", carrier="twilio")
        tape = record(house, signing)
        sitting = Sitting(house, tape, plain, signing, runs or _of(RUNS, quick=quick))
        described = machine(house)
        for name in names or tuple(SIZES):
            size = events or _of(SIZES[name], quick=quick)
            for figure in _measures(_of(MESSAGES, quick=quick))[name](sitting, size):
                figures.append(figure)
                (results / f"{figure.name}.json").write_text(json.dumps(written(figure, described, quick=quick), indent=1) + "\n")
    print_table(figures, described, quick=quick)


def _of(size: Size, *, quick: bool) -> int:
    return size.quick if quick else size.full


def _measures(messages: int) -> Mapping[str, Callable[[Sitting, int], list[Figure]]]:
    # Imported when there is a house: the application reads its settings once.
    from bench.figures.acceptance import batch, single  # noqa: PLC0415 - see above
    from bench.figures.pipeline import pipeline  # noqa: PLC0415 - see above
    from bench.figures.receipts import receipts  # noqa: PLC0415 - see above

    return {
        "accept-single": single,
        "accept-batch": batch,
        "pipeline": lambda sitting, count: pipeline(sitting, count, messages),
        "receipts": receipts,
    }


if __name__ == "__main__":
    main()
