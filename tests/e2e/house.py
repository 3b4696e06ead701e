"""A running Daybook, as its users see it: HTTP, the simulator's book, psql, the command line."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import psycopg
from psycopg.sql import SQL, Identifier
from sqlalchemy import URL

from tests.awaiting import eventually

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 120.0

# 555-01xx is reserved for fiction in every area code; each test takes numbers of its own, so that no
# gate is shared.
_AREAS = ("201", "202", "203", "205", "206", "207", "208", "209", "210", "212", "213", "214", "215", "216", "217", "218", "219")
_NUMBERS = (f"+1{area}55501{n:02d}" for area in _AREAS for n in range(100))
_SUBJECTS = count(1)


def new_number() -> str:
    """Give a number that no other test of this run uses."""
    return next(_NUMBERS)


@dataclass
class House:
    """One running Daybook and a tenant's key to it."""

    ready: Mapping[str, str]
    process: subprocess.Popen[bytes]
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    api_key: str = ""
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=30))
    offer: dict[str, Any] | None = None
    """An event posted early, whose hours open while the other tests run."""

    def __post_init__(self) -> None:
        self.api_key = self.api_key or self.ready["api_key"]

    def as_tenant(self, api_key: str) -> House:
        """Give the same house with another tenant's key."""
        return House(self.ready, self.process, self.folder, self.environment, api_key, self.client)

    # As an application.

    def request(self, **fields: Any) -> dict[str, Any]:
        """Make a request body for a person of its own."""
        recipient = {"ref": f"m-{secrets.token_hex(4)}", "sms": fields.pop("sms", None) or new_number()}
        recipient |= {name: fields.pop(name) for name in ("time_zone", "locale") if name in fields}
        body = {
            "type": "class.opening",
            "subject": f"c-{next(_SUBJECTS)}-{secrets.token_hex(3)}",
            "recipient": recipient,
            "template": "class-opening",
            "data": {"class": "Spin 18:00"},
            "channels": ["sms"],
        }
        return body | fields

    def call(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Call the API with the tenant's key."""
        headers = {"Authorization": f"Bearer {self.api_key}"} | more.pop("headers", {})
        return self.client.request(method, self.ready["base_url"] + path, headers=headers, **more)

    def post(self, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """Post an event that is accepted; return the answer."""
        response = self.call("POST", "/v1/events", json=body, headers=headers)
        assert response.status_code in {200, 202}, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def history(self, event_id: str) -> list[dict[str, Any]]:
        """Read an event's whole history."""
        items: list[dict[str, Any]] = []
        cursor = None
        while True:
            params = {"event": event_id, "limit": 100} | ({"after": cursor} if cursor else {})
            page = self.call("GET", "/v1/history", params=params).json()
            items += page["items"]
            cursor = page["next_cursor"]
            if not page["has_more"]:
                return items

    def last(self, event_id: str) -> dict[str, Any]:
        """Give the newest line of an event's history. Transactions that are still open, anybody's, can hold the first back."""
        return eventually(lambda: self.history(event_id), until=bool)[-1]

    def states(self, event_id: str) -> list[str]:
        """Give the states of an event's history, in order."""
        return [item["state"] for item in self.history(event_id)]

    def await_state(self, event_id: str, state: str, *, seconds: float = 30.0) -> list[dict[str, Any]]:
        """Wait until an event's history ends in a state."""
        return eventually(
            lambda: self.history(event_id), until=lambda items: bool(items) and items[-1]["state"] == state, seconds=seconds
        )

    # As the carrier.

    def accepted(self, number: str) -> list[dict[str, Any]]:
        """Give what the carrier accepted for a number: the outside truth."""
        rows: list[dict[str, Any]] = self._simulator("GET", "accepted", params={"to": number}).json()
        return rows

    def rule(self, number: str, **then: Any) -> None:
        """Script what the carrier does with sends to a number, beside the rules of other tests."""
        self.rules({"match": {"to": number}, "then": then})

    def rules(self, *rules: Mapping[str, Any]) -> None:
        """Add rules; those already there stay."""
        there = self._simulator("GET", "rules").json()["rules"]
        response = self._simulator("PUT", "rules", json={"rules": [*rules, *there]})
        assert response.status_code == 200, response.text

    def write(self, number: str, text: str, **how: Any) -> None:
        """Let somebody who was texted write back."""
        self._simulator("POST", "inbound", json={"from": number, "text": text, **how}).raise_for_status()

    def _simulator(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.client.request(method, f"{self.ready['simulator_url']}/_sim/{path}", **more)

    # As an operator.

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own."""
        with psycopg.connect(self.ready["database_url"].replace("+psycopg", "")) as connection:
            cursor = connection.execute(statement, params)
            return cursor.fetchall() if cursor.description else []

    def daybook(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the command line beside the running house."""
        env = {**self.environment, "DAYBOOK_STATE": str(self.folder / "state"), "DAYBOOK_PUBLIC_URL": self.ready["base_url"]}
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120, check=False
        )

    def stop(self) -> None:
        """Press Ctrl-C and wait until everything is down."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)
        self.client.close()


def child_environment() -> dict[str, str]:
    """Give the environment of the commands we start, without what only pytest needs."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}


def environment_of(server: URL, database: str, *, redis_db: int) -> dict[str, str]:
    """Make a new database on the run's Postgres; give the environment of a house on it, with two of Valkey's databases."""
    plain = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(database)))
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(database)))
    environment = child_environment()
    redis_url = environment["REDIS_URL"].removesuffix("/0")
    del environment["DAYBOOK_PUBLIC_URL"]  # it follows the port
    return environment | {
        "DATABASE_URL": server.set(drivername="postgres", database=database).render_as_string(hide_password=False),
        "REDIS_URL": f"{redis_url}/{redis_db}",
        "BROKER_URL": f"{redis_url}/{redis_db + 1}",
    }


@contextmanager
def running_house(folder: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Iterator[House]:
    """Run `daybook up` until the block ends."""
    house = start_house(folder, environment, arguments)
    try:
        yield house
    finally:
        house.stop()


def start_house(folder: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> House:
    """Start `daybook up` and wait until it says that it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    ready = folder / "state" / "ready.json"
    ready.unlink(missing_ok=True)  # a killed run could not remove it
    output = (folder / "up.log").open("ab")
    command = [sys.executable, "-m", "cli", "up", "--state", str(folder / "state"), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env=dict(environment), stdout=output, stderr=output, start_new_session=True)
    output.close()
    eventually(lambda: ready.exists() or process.poll() is not None, seconds=START_SECONDS)
    assert process.poll() is None, (folder / "up.log").read_text()[-4000:]
    return House(json.loads(ready.read_text()), process, folder, dict(environment))
