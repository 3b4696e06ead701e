"""A decision: what one costs under the sample document with rules by country, with its evidence, in this process."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any, Final

import yaml

import policy
from bench.figure import Sitting
from bench.gauge import Gauge, Reading
from bench.house import stopwatch
from policy.decide import decide
from policy.document import Document, parse
from policy.fixtures import Case, read_fixture

SAMPLE: Final = "sample-2026-12-01.yaml"
LIMIT: Final = 200.0
MICROSECONDS: Final = 1_000_000


def decision(sitting: Sitting, count: int) -> list[Gauge]:
    """Decide every case of the sample's fixture so many times, run by run; give the median run, over all and of the dearest."""
    document, cases = parse(_read("documents")), read_fixture(_read("fixtures")).cases
    for case in cases:  # what is looked up once and kept
        decide(document, case.facts, now=case.now)
    each = {case.name: median(_cost(document, case, count) for _ in range(sitting.runs)) for case in cases}
    dearest = max(each, key=lambda name: each[name])
    return [
        Gauge(
            name="decision",
            ours=f"one decision with its evidence, under {document.label}",
            against="the limit; the cases are those of the version's own fixture",
            readings=[
                Reading("over all cases", round(sum(each.values()) / len(each), 1), "µs", at_most=LIMIT),
                Reading("the dearest case", round(each[dearest], 1), "µs", at_most=LIMIT, note=dearest),
            ],
            sizes={"decisions_of_each": count, "cases": len(each), "rules": len(document.rules), "runs": sitting.runs},
            details={"microseconds": {name: round(cost, 1) for name, cost in each.items()}},
        )
    ]


def _cost(document: Document, case: Case, count: int) -> float:
    """Give what one decision takes, in microseconds."""
    started = stopwatch()
    for _ in range(count):
        decide(document, case.facts, now=case.now)
    return (stopwatch() - started) / count * MICROSECONDS


def _read(folder: str) -> Any:  # noqa: ANN401 - what YAML holds
    return yaml.safe_load((Path(policy.__file__).parent / folder / SAMPLE).read_text(encoding="utf-8"))
