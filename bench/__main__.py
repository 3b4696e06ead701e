"""`python -m bench`: measure, print a table, and write every run as JSON beside it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import structlog

from bench.figure import Figure, Sitting
from bench.gauge import Gauge
from bench.house import open_house
from bench.report import machine, print_tables, written
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
    # Its numbers are --sizes.
    "flatness": Size(0, 0),
    "urgent": Size(2_000, 50),
    "footprint": Size(5_000, 160),
    "decision": Size(2_000, 20),
}
# Enough for a rate: plain Celery does the same for each message, however many there are.
MESSAGES: Final = Size(4_000, 200)
BULK: Final = Size(100_000, 5_000)
RUNS: Final = Size(5, 1)
PASTS: Final = {True: (20_000, 40_000), False: (100_000, 1_000_000)}
"""Closed attempts, quickly and in full; ten million take the disk and the time of a larger machine."""


def read_sizes(_context: click.Context, _option: click.Parameter, value: str | None) -> Sequence[int] | None:
    """Read whole numbers joined by commas."""
    if value is None:
        return None
    sizes = [int(size) if size.isdecimal() else 0 for size in value.split(",")]
    if len(sizes) < 2 or min(sizes) < 1:  # noqa: PLR2004 - one size is compared with another
        raise click.BadParameter("two or more whole numbers joined by commas are wanted: 100000,1000000")
    return sizes


Measures = Callable[[Sitting, int], Sequence[Figure | Gauge]]


@click.command()
@click.option("--figure", "names", multiple=True, type=click.Choice(list(SIZES)), help="Only this one; may be repeated.")
@click.option("--events", type=click.IntRange(min=16), help="Events per run, instead of each figure's own number.")
@click.option("--runs", type=click.IntRange(min=1), help="Runs of each side; the median is the figure.")
@click.option("--quick", is_flag=True, help="One small run: shows that it works, measures nothing.")
@click.option("--sizes", callback=read_sizes, help="Closed attempts for flatness, joined by commas: 100000,1000000,10000000.")
@click.option("--results", type=click.Path(path_type=Path, file_okay=False), default=RESULTS, help="Where the JSON goes.")
def main(
    names: tuple[str, ...], events: int | None, runs: int | None, *, quick: bool, sizes: Sequence[int] | None, results: Path
) -> None:
    """Measure Daybook beside the bare database and the bare queue, as ratios of one sitting, and what it takes."""
    results.mkdir(parents=True, exist_ok=True)
    # What this process does to load the books is not what is measured; the house keeps its own logs.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    figures: list[Figure | Gauge] = []
    with open_house() as house:
        plain, signing = settle("plain", carrier="null"), settle("signing", carrier="twilio")
        tape = record(house, signing)
        sitting = Sitting(house, tape, plain, signing, runs or _of(RUNS, quick=quick))
        described = machine(house)
        measures = _measures(_of(MESSAGES, quick=quick), _of(BULK, quick=quick), sizes or PASTS[quick])
        for name in names or tuple(SIZES):
            size = events or _of(SIZES[name], quick=quick)
            for figure in measures[name](sitting, size):
                figures.append(figure)
                (results / f"{figure.name}.json").write_text(json.dumps(written(figure, described, quick=quick), indent=1) + "\n")
    print_tables(figures, described, quick=quick)


def _of(size: Size, *, quick: bool) -> int:
    return size.quick if quick else size.full


def _measures(messages: int, bulk: int, pasts: Sequence[int]) -> Mapping[str, Measures]:
    # Imported when there is a house: the application reads its settings once.
    from bench.figures.acceptance import batch, single  # noqa: PLC0415 - see above
    from bench.figures.decision import decision  # noqa: PLC0415 - see above
    from bench.figures.flatness import flatness  # noqa: PLC0415 - see above
    from bench.figures.footprint import footprint  # noqa: PLC0415 - see above
    from bench.figures.pipeline import pipeline  # noqa: PLC0415 - see above
    from bench.figures.receipts import receipts  # noqa: PLC0415 - see above
    from bench.figures.urgent import urgent  # noqa: PLC0415 - see above

    return {
        "accept-single": single,
        "accept-batch": batch,
        "pipeline": lambda sitting, count: pipeline(sitting, count, messages),
        "receipts": receipts,
        "flatness": lambda sitting, _: flatness(sitting, pasts),
        "urgent": lambda sitting, count: urgent(sitting, count, bulk),
        "footprint": footprint,
        "decision": decision,
    }


if __name__ == "__main__":
    main()
