"""Kill -9 at every commit, and just before and after the carrier's bytes: nothing lost, nothing twice."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Final

import pytest

from tests.awaiting import eventually
from tests.crash.town import Town, keep_alive, request
from tests.e2e.house import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

PLACES: Final = ("before_commit", "committed")
AROUND_THE_BYTES: Final = ("carrier/write", "carrier/written", "carrier/answered")

# Work that no event of these tests makes write anything; each with the reason.
ELSEWHERE: Final = {
    "flows.dispatch.dispatch": "reads only",
    "flows.handoff._report_not_handed_off": "needs a lost answer, not a killed process: see tests/flows",
    "flows.routes.find_route": "reads only",
    "flows.handoff._with_tokens": "writes only when the route's rate is used up",
    "flows.heartbeat.is_silent": "reads only",
    "flows.inlet._one_by_one": "needs a row that the ledger refuses: see tests/flows",
    "flows.inlet._refuse_poison": "as above",
    "flows.keep._review": "needs a report that the ledger refuses: see tests/flows",
    "flows.poll._look_up": "reads only",
    "flows.readiness._revision": "reads only",
    "flows.reconcile.expiry._expire": "needs a brake: see tests/flows",
    "flows.reconcile.horizons.reach_horizons": "reads; what it finds is settled by its callees",
    "flows.reconcile.receipts.observe_waiting": "writes only when a late answer names a remote id: see tests/flows",
    "flows.reconcile.receipts._observe": "needs a receipt left behind, which the handler's own kill leaves",
    "ledger.metrics._read": "reads only",
    "web.api.history.get_history": "nobody reads here",
}
# Reached only after another kill left something behind: not the first thing a process does.
LATER: Final = frozenset({"flows.reconcile.deadlines._doubt"})


def calls_of_transact() -> set[str]:
    """Name every function that runs a piece of work, as failpoints do; commands of the command line apart."""
    labels = set()
    for path in (*(ROOT / "app").rglob("*.py"), *(ROOT / "web").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("app.")
        labels |= {f"{module}.{work}" for work in _works_in(ast.parse(path.read_text()))}
    return labels


def _works_in(tree: ast.Module) -> Iterator[str]:
    """Give the names of what is run: the function passed, or the one that a lambda stands in."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "transact":
                work = call.args[0]
                inner = work.args[0] if isinstance(work, ast.Call) else work
                yield inner.id if isinstance(inner, ast.Name) else function.name


def life_of(town: Town) -> dict[str, str]:
    """Let four events begin: a plain one, one of the inlet, one whose answer is lost, one that nobody ever hears of."""
    plain, let_in, doubtful = (next(town.numbers) for _ in range(3))
    silent = f"+1416555{next(_SILENT):04d}"
    town.script(
        {"match": {"to": doubtful}, "then": {"accept": True, "respond": "drop", "receipts": "lost"}},
        {"match": {"to": silent}, "then": {"receipts": "lost", "path": [{"status": "sent", "after_ms": 10}]}},
    )
    events = {town.post(request(number)): number for number in (plain, doubtful, silent)}
    return events | {town.insert(request(let_in)): let_in}


_SILENT = count(100)


def has_died(town: Town) -> bool:
    """Wait for the end of this life, and begin the next; False when it went on."""
    until = time.monotonic() + 12
    while (town.folder / "rules").read_text() and time.monotonic() < until:
        keep_alive(town)
        time.sleep(0.02)
    return not (town.folder / "rules").read_text()


def test_whatever_place_a_process_dies_at_nothing_is_lost_and_nothing_goes_out_twice(town: Town) -> None:
    labels = sorted(calls_of_transact() - ELSEWHERE.keys() - LATER)
    points = [*(f"{label}/{place}" for label in labels for place in PLACES), *AROUND_THE_BYTES]
    survived: list[str] = []
    events: dict[str, str] = {}
    town.live()
    for point in points:
        town.rule(f"{point}#1=kill")
        events |= life_of(town)
        if not has_died(town):
            survived.append(point)
    town.rule("")
    outcomes = {event_id: eventually(partial(town.outcome, event_id), seconds=90) for event_id in events}

    assert survived == [], "no process reached these: an event that needs them is missing here"
    handed = {number: town.accepted(number) for number in events.values()}
    # The silent ones are a question to a person, whether they left or not; all others arrived, once,
    # since what was not found went again.
    silent = {number for number in handed if number.startswith("+1416")}
    assert {events[e] for e, outcome in outcomes.items() if outcome != "delivered"} == silent
    assert {number: times for number, times in handed.items() if times != 1 and number not in silent} == {}
    assert {number: times for number, times in handed.items() if times > 1} == {}
    told = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--full"],
        cwd=ROOT,
        env=town.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
