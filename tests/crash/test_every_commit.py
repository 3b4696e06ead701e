"""Kill -9 at every commit, and just before and after the carrier's bytes: nothing lost, nothing twice."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest
import yaml
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.ground.config import database_url
from local.state import free_port
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.server import Simulator
from tests.awaiting import eventually
from tests.conftest import World
from tests.e2e.house import ROOT, child_environment

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

PLACES: Final = ("before_commit", "committed")
AROUND_THE_BYTES: Final = ("carrier/write", "carrier/written", "carrier/answered")
SAMPLE: Final = ROOT / "policy" / "documents" / "sample-2026-11-01.yaml"

# Work that no event of these tests makes write anything; each with the reason.
ELSEWHERE: Final = {
    "flows.dispatch.dispatch": "reads only",
    "flows.handoff._report_not_handed_off": "needs a lost answer, not a killed process: see tests/flows",
    "flows.handoff._say": "reads only",
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


@dataclass
class Town:
    """A database, a carrier, and one life after the other."""

    database: str
    environment: dict[str, str]
    port: int
    folder: Path
    carrier: Simulator
    api_key: str
    process: subprocess.Popen[bytes] | None = None
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=10))
    numbers: Iterator[str] = field(
        default_factory=lambda: (f"+1{a}55501{n:02d}" for a in range(201, 220) for n in range(100) if a not in {211, 204})
    )

    def live(self) -> None:
        """Start a life and wait until it answers."""
        log = (self.folder / "life.log").open("ab")
        command = [sys.executable, "-m", "tests.crash.life", str(self.port)]
        self.process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
        log.close()
        eventually(self._answers_or_died, seconds=30)

    def _answers_or_died(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            return True
        try:
            return self.client.get(f"http://127.0.0.1:{self.port}/health/live").status_code == 200
        except httpx.TransportError:
            return False

    def die(self) -> None:
        """End the present life."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def rule(self, text: str) -> None:
        """Say where the next life ends; passings are counted anew."""
        (self.folder / "passings").write_text("")
        (self.folder / "rules").write_text(text)

    def passed(self) -> set[str]:
        """Give the labels passed since the last rule."""
        return set((self.folder / "passings").read_text().split())

    def post(self, body: dict[str, Any]) -> str:
        """Post an event as an application does: again and again until somebody answers."""

        def try_once() -> str | None:
            try:
                headers = {"Authorization": f"Bearer {self.api_key}"}
                answer = self.client.post(f"http://127.0.0.1:{self.port}/v1/events", json=body, headers=headers)
            except httpx.TransportError:
                keep_alive(self)
                return None
            return str(answer.json()["event_id"]) if answer.status_code in {200, 202} else None

        event_id = eventually(try_once, seconds=30)
        assert event_id is not None
        return event_id

    def accepted(self, number: str) -> int:
        """Count what the carrier accepted for a number."""
        return len(self.client.get(f"{self.carrier.url}/_sim/accepted", params={"to": number}).json())

    def script(self, *rules: dict[str, Any]) -> None:
        """Say what the carrier does."""
        answer = self.client.put(f"{self.carrier.url}/_sim/rules", json={"rules": rules})
        assert answer.status_code == 200, answer.text

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Ask the books."""
        with psycopg.connect(self.database) as connection:
            return connection.execute(statement, params).fetchall()

    def outcome(self, event_id: str) -> str | None:
        """Say how an event ended; None while it goes on."""
        keep_alive(self)
        if self.sql("SELECT 1 FROM review WHERE event_id = %s AND settled_at IS NULL", event_id):
            return "review"
        closed = self.sql("SELECT state FROM intent WHERE event_id = %s AND closed_at IS NOT NULL", event_id)
        return str(closed[0][0]) if closed else None


def seed(database: str, carrier_url: str, base_url: str) -> str:
    """Make a tenant whose rules wait for nothing; return its key."""
    raw = yaml.safe_load(SAMPLE.read_text())
    for rules in raw["categories"].values():
        rules["cooldown"] = "0s"
    raw["categories"]["transactional"]["retry"]["backoff"] = {"initial": "1s", "factor": 2, "max": "2s"}
    now = datetime(2026, 11, 15, tzinfo=UTC)
    engine = create_engine(database_url(database))
    with Session(engine, expire_on_commit=False) as session:
        tenant_id = add_tenant(session, name="crash", now=now)
        key = add_key(session, tenant_id=tenant_id, name="test", scopes=("events:write", "events:read", "history:read"), now=now)
        store_policy(session, tenant_id=tenant_id, raw=raw, now=now)
        template = NewTemplate("class-opening", "transactional", ["class"], {"en": "A seat opened in {{ class }}."}, "en")
        publish_template(session, tenant_id=tenant_id, template=template, now=now)
        settings = {
            "base_url": carrier_url,
            "account_sid": DEVELOPMENT_ACCOUNT_SID,
            "first_check_seconds": "0.3",
            "settling_seconds": "0.5",
        }
        credentials = {"auth_token": DEVELOPMENT_AUTH_TOKEN}
        for name, countries, horizon in (("far", ["US"], "86400"), ("near", ["CA"], "1")):
            route = NewRoute(
                name, "twilio", "+15005550006", settings | {"horizon_seconds": horizon}, credentials, countries=countries
            )
            add_route(session, tenant_id=tenant_id, route=route, public_url=base_url, now=now)
        session.commit()
    engine.dispose()
    return key


@pytest.fixture(scope="module")
def town(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    """Give a town with nobody living in it yet."""
    plain = world.engine.url.set(drivername="postgresql")
    with psycopg.connect(plain.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS crash WITH (FORCE)")
        connection.execute("CREATE DATABASE crash")
    database = plain.set(database="crash").render_as_string(hide_password=False)
    port, folder = free_port(), tmp_path_factory.mktemp("crash")
    environment = child_environment() | {
        "DATABASE_URL": database,
        "REDIS_URL": os.environ["REDIS_URL"].removesuffix("/0") + "/3",
        "DAYBOOK_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "DAYBOOK_FAILPOINTS": str(folder),
        "DAYBOOK_HANDOFF_SECONDS": "1",
        "DAYBOOK_LEASE_SECONDS": "2",
    }
    subprocess.run([sys.executable, "-m", "cli", "migrate"], cwd=ROOT, env=environment, check=True, capture_output=True)
    with Simulator(seed=7, retry_spacing=0.05) as carrier:
        key = seed(database, carrier.url, environment["DAYBOOK_PUBLIC_URL"])
        made = Town(database, environment, port, folder, carrier, key)
        yield made
        made.die()
        made.client.close()


_SUBJECTS = count(1)


def request(number: str, **fields: Any) -> dict[str, Any]:
    body = {
        "type": "class.opening",
        "subject": f"c-{next(_SUBJECTS)}",
        "recipient": {"ref": f"m-{number[1:4]}-{number[-4:]}", "sms": number},
        "template": "class-opening",
        "data": {"class": "Spin 18:00"},
    }
    return body | fields


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
    by_inlet = request(let_in)
    with psycopg.connect(town.database) as booking:
        booking.execute("INSERT INTO inlet (tenant, request) VALUES ('crash', %s)", [json.dumps(by_inlet)])
    events = {town.post(request(number)): number for number in (plain, doubtful, silent)}
    find = "SELECT id FROM event WHERE subject = %s"

    def find_let_in() -> list[tuple[Any, ...]]:
        keep_alive(town)
        return town.sql(find, by_inlet["subject"])

    let_in_id = eventually(find_let_in, seconds=30)
    return events | {str(let_in_id[0][0]): let_in}


_SILENT = count(100)


def keep_alive(town: Town) -> None:
    """Begin the next life when this one has ended; nothing kills it."""
    if town.process is None or town.process.poll() is not None:
        town.rule("")
        town.live()


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
    assert {number: times for number, times in handed.items() if times > 1} == {}
    assert {e for e, outcome in outcomes.items() if outcome == "delivered" and handed[events[e]] != 1} == set()
    told = subprocess.run(
        [sys.executable, "-m", "cli", "audit", "--full"],
        cwd=ROOT,
        env=town.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
