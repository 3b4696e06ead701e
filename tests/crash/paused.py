"""Hold processes of a town where a test says, let them go in the order it says, and ask what is true of their events."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urldefrag, urlsplit

import httpx

from local.processes import finish, spawn
from local.state import free_port
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.dialect import sign
from tests.awaiting import eventually
from tests.crash.town import Town
from tests.e2e.house import ROOT


@dataclass(frozen=True, slots=True)
class Failpoints:
    """A folder of failpoints, and whoever has it in its environment."""

    folder: Path

    def hold(self, *points: str) -> None:
        """Hold whoever passes these points (`label#1`: the first one only) from now on; passings are counted anew."""
        (self.folder / "passings").write_text("")
        (self.folder / "rules").write_text("\n".join(f"{point}=hold" for point in points))

    def await_held(self) -> None:
        """Wait until somebody stands there."""
        eventually((self.folder / "holding").exists, seconds=30)

    def go_on(self) -> None:
        """Let whoever stands there go, as far as the next point."""
        (self.folder / "holding").unlink(missing_ok=True)

    def release(self) -> None:
        """Let whoever stands there go, and hold nobody any more."""
        (self.folder / "rules").write_text("")
        self.go_on()


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the town with failpoints of its own, so that two of them are let go in either order."""

    town: Town
    port: int
    points: Failpoints

    def receive(self, number: str, status: str, **fields: str) -> httpx.Response:
        """Take the carrier's signed call about the text to a number."""
        return receive(self.town, self.port, number, status, **fields)


@contextmanager
def edge_of(town: Town, folder: Path) -> Iterator[Edge]:
    """Run one more edge of a town until the block ends."""
    folder.mkdir()
    port = free_port()
    environment = town.environment | {"DAYBOOK_FAILPOINTS": str(folder)}
    command = [sys.executable, "-m", "tests.crash.edge", str(port)]
    process = spawn(command, folder=ROOT, env=environment, log=folder / "edge.log")
    edge = Edge(town, port, Failpoints(folder))
    try:
        eventually(partial(is_alive, town, port), seconds=30)
        yield edge
    finally:
        edge.points.release()
        process.terminate()
        finish(process, grace_seconds=5)


def is_alive(town: Town, port: int) -> bool:
    """Say whether an edge answers."""
    try:
        return town.client.get(f"http://127.0.0.1:{port}/health/live").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def receive(town: Town, port: int, number: str, status: str, **fields: str) -> httpx.Response:
    """Call an edge about the latest text to a number as the carrier does: signed over the URL that it was given."""
    text = taken(town, number)[-1]
    url = urldefrag(text["receipt_url"]).url
    form = {"AccountSid": DEVELOPMENT_ACCOUNT_SID, "MessageSid": text["sid"], "MessageStatus": status, "To": number, **fields}
    there = httpx.URL(f"http://127.0.0.1:{port}{urlsplit(url).path}?{urlsplit(url).query}")
    return httpx.post(there, data=form, headers={"X-Twilio-Signature": sign(DEVELOPMENT_AUTH_TOKEN, url, form)}, timeout=30)


@dataclass
class Lives:
    """One life of a town, or two that share their failpoints: the first at a held point stands, the other works on."""

    town: Town
    other: subprocess.Popen[bytes] | None = None
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> Failpoints:
        """Give the failpoints of them all."""
        return Failpoints(self.town.folder)

    def be(self, count: int, **settings: str) -> None:
        """Have so many lives with these settings; those that run so already go on."""
        if settings != self.settings:
            self.end()
            self.settings = settings
            self.town.environment.update(settings)
            self.town.live()
        if count > 1 and self.other is None:
            port = free_port()
            self.other = self.town.begin(port)
            eventually(partial(is_alive, self.town, port), seconds=60)

    def end(self) -> None:
        """End them."""
        self.points.release()
        self.town.die()
        if self.other is not None:
            self.other.kill()
            self.other.wait()
            self.other = None


def taken(town: Town, number: str) -> list[dict[str, Any]]:
    """Give what the carrier took for a number: the outside truth."""
    rows: list[dict[str, Any]] = town.client.get(f"{town.carrier.url}/_sim/accepted", params={"to": number}).json()
    return rows


def attempts(town: Town, event_id: str) -> list[tuple[Any, ...]]:
    """Give an event's attempts as (state, error class), oldest first."""
    return town.sql("SELECT state, error_class FROM attempt WHERE event_id = %s ORDER BY ordinal", event_id)


def heard(town: Town, event_id: str) -> list[tuple[Any, ...]]:
    """Give everything heard about an event as (source, state, judgement), in the order in which it was kept."""
    statement = "SELECT source, state, judgement FROM observation WHERE event_id = %s ORDER BY observed_at, id"
    return town.sql(statement, event_id)


def await_blocked(town: Town) -> None:
    """Wait until somebody waits for a lock that another transaction holds."""
    waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    eventually(partial(town.sql, waiting), seconds=10)


def call(town: Town, method: str, path: str) -> dict[str, Any]:
    """Call the town's API as its tenant; return the answer's body."""
    answer = town.client.request(
        method, f"http://127.0.0.1:{town.port}{path}", headers={"Authorization": f"Bearer {town.api_key}"}
    )
    assert answer.is_success, answer.text
    body: dict[str, Any] = answer.json()
    return body


def history(town: Town, event_id: str) -> list[str]:
    """Give the states of an event's history, as a client reads them."""
    return [item["state"] for item in call(town, "GET", f"/v1/history?event={event_id}&limit=100")["items"]]


def assert_balanced(environment: Mapping[str, str]) -> None:
    """Check that the audit of everything finds nothing."""
    command = [sys.executable, "-m", "cli", "audit", "--full"]
    told = subprocess.run(command, cwd=ROOT, env=dict(environment), capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
