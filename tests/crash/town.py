"""A town for crash tests: a database, a carrier, a tenant, and lives that end where a test says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import yaml
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.ground.config import database_url
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.server import Simulator
from tests.awaiting import eventually
from tests.e2e.house import ROOT

SAMPLE: Final = ROOT / "policy" / "documents" / "sample-2026-11-01.yaml"


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
        """Start a life in place of the present one, and wait until it answers."""
        self.die()
        self.process = self.begin(self.port)
        eventually(self._answers_or_died, seconds=30)

    def begin(self, port: int) -> subprocess.Popen[bytes]:
        """Start a life on a port, beside those there are."""
        command = [sys.executable, "-m", "tests.crash.life", str(port)]
        with (self.folder / "life.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)

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
        # The rule first: a passing between the two would be counted, and the first that the rule waits for would be the second.
        (self.folder / "rules").write_text(text)
        (self.folder / "passings").write_text("")

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

    def insert(self, body: dict[str, Any]) -> str:
        """Put an event into the inlet, and wait until it is accepted."""
        with psycopg.connect(self.database) as booking:
            booking.execute("INSERT INTO inlet (tenant, request) VALUES ('crash', %s)", [json.dumps(body)])

        def find() -> list[tuple[Any, ...]]:
            keep_alive(self)
            return self.sql("SELECT id FROM event WHERE subject = %s", body["subject"])

        return str(eventually(find, seconds=30)[0][0])

    def accepted(self, number: str) -> int:
        """Count what the carrier accepted for a number."""
        return len(self.client.get(f"{self.carrier.url}/_sim/accepted", params={"to": number}).json())

    def script(self, *rules: dict[str, Any]) -> None:
        """Say what the carrier does, besides what it was told before: a text may go out long after its event."""
        there = self.client.get(f"{self.carrier.url}/_sim/rules").json()["rules"]
        answer = self.client.put(f"{self.carrier.url}/_sim/rules", json={"rules": [*rules, *there]})
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
    # What a look-up does not find, asked twice, goes again: the harshest rule for "at most once".
    raw["categories"]["transactional"]["ambiguity"] = {"not_found": "resend", "horizon": "review"}
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


_SUBJECTS = count(1)


def request(number: str, **fields: Any) -> dict[str, Any]:
    """Write a request for a person of that number's own."""
    body = {
        "type": "class.opening",
        "subject": f"c-{next(_SUBJECTS)}",
        "recipient": {"ref": f"m-{number[1:4]}-{number[-4:]}", "sms": number},
        "template": "class-opening",
        "data": {"class": "Spin 18:00"},
    }
    return body | fields


def keep_alive(town: Town) -> None:
    """Begin the next life when this one has ended; nothing kills it."""
    if town.process is None or town.process.poll() is not None:
        town.rule("")
        town.live()
