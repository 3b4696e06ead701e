"""A crowd: many events at a running house, each for a person of its own, and how every one of them must end."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import redis
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.ground.config import database_url
from local.processes import fingerprint, finish, spawn
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from tests.awaiting import eventually
from tests.e2e.house import ROOT, House, new_number

SETTLED_WITHIN: Final = 60.0

# An event has ended when its intent closed, or when a person is asked and the question says why.
# The first few, with what a reader of a failure would ask next.
OPEN: Final = """
SELECT i.event_id::text, i.state, i.reason, i.next_at,
       (SELECT json_agg(row(a.state, a.taken, a.error_class, a.next_check_at, a.not_found_count) ORDER BY a.ordinal)
        FROM attempt a WHERE a.intent_id = i.id) AS attempts,
       (SELECT json_agg(row(o.source, o.state, o.judgement, o.reason) ORDER BY o.id)
        FROM observation o WHERE o.intent_id = i.id) AS told
FROM intent i
WHERE i.event_id = ANY(%s::uuid[]) AND i.closed_at IS NULL
  AND NOT EXISTS (SELECT FROM review r WHERE r.event_id = i.event_id AND r.settled_at IS NULL)
LIMIT 10
"""
ENDS: Final = """
SELECT i.event_id::text, coalesce((SELECT r.cause FROM review r WHERE r.event_id = i.event_id AND r.settled_at IS NULL), i.state)
FROM intent i WHERE i.event_id = ANY(%s::uuid[])
"""


@dataclass
class Crowd:
    """A house, a tenant of it, and what the troubles need to know about both."""

    house: House
    tenant: str
    numbers: dict[str, str] = field(default_factory=dict)
    """The number of each event posted here."""
    repeats: Counter[str] = field(default_factory=Counter)
    """Why something had to be posted again, and how often."""

    # As an application.

    def post(self, count: int, **fields: Any) -> list[str]:
        """Post events for people of their own; return their ids."""
        events = []
        for _ in range(count):
            number = new_number()
            event_id = self.house.post(self.house.request(sms=number, **fields))["event_id"]
            self.numbers[event_id] = number
            events.append(event_id)
        return events

    def post_together(self, count: int, **fields: Any) -> list[str]:
        """Post events that all fall due at one instant, so that one dispatch leases them in full pages."""
        due = self.house.sql("SELECT clock_timestamp() + interval '2 seconds'")[0][0]
        return self.post(count, not_before=due.isoformat(), **fields)

    def post_surely(self, path: str, body: Mapping[str, Any], *, seconds: float = 150.0) -> dict[str, Any]:
        """Post as an application does whose server may die: the same again until somebody answers."""

        def post() -> dict[str, Any] | None:
            try:
                response = self.house.call("POST", path, json=body)
            except httpx.TransportError:
                self.repeats["broken"] += 1
                return None
            if response.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
                self.repeats[str(response.status_code)] += 1
                return None
            assert response.is_success, response.text
            answer: dict[str, Any] = response.json()
            return answer

        answer = eventually(post, until=lambda answer: answer is not None, seconds=seconds)
        assert answer is not None
        return answer

    def insert(self, **fields: Any) -> str:
        """Put an event into the inlet and ring nothing; return the subject by which it is found."""
        body = self.house.request(**fields)
        self.house.sql("INSERT INTO inlet (tenant, request) VALUES (%s, %s)", self.tenant, json.dumps(body))
        return str(body["subject"])

    def slow(self, *, low_ms: int, high_ms: int) -> None:
        """Let the carrier take its time with every send, until the next such word."""
        rule = {"match": {"to": "+1*"}, "then": {"latency_ms": [low_ms, high_ms]}}
        answer = self.house.client.put(f"{self.house.ready['simulator_url']}/_sim/rules", json={"rules": [rule]})
        assert answer.status_code == 200, answer.text

    # As an operator with bad luck.

    @cached_property
    def valkey(self) -> redis.Redis:
        """Give a client of the house's Valkey, broker and tokens in one."""
        return redis.Redis.from_url(self.house.ready["redis_url"], socket_timeout=5)

    def pid(self, name: str) -> int | None:
        """Give the pid of one of the house's processes; None while it is down."""
        rows = json.loads((self.house.folder / "state" / "run" / "processes.json").read_text())
        return next((row["pid"] for row in rows if row["name"] == name and fingerprint(row["pid"]) == row["mark"]), None)

    def kill(self, name: str, number: signal.Signals) -> None:
        """Signal one of the house's servers, and wait until another process runs in its place."""
        pid = self.pid(name)
        assert pid is not None
        os.kill(pid, number)
        eventually(partial(self.pid, name), until=lambda now: now not in {None, pid}, seconds=40)

    def await_ready(self) -> None:
        """Wait until the API answers that it is ready."""

        def is_ready() -> bool:
            try:
                return self.house.call("GET", "/health/ready").status_code == 200
            except httpx.TransportError:
                return False

        eventually(is_ready, seconds=60)

    @contextmanager
    def beside(self, *command: str, **environment: str) -> Iterator[Path]:
        """Run one more process of this house until the block ends; give its log."""
        state = self.house.folder / "state"
        rings = {name: os.environ[name] for name in ("DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING")}
        ready = {
            "DATABASE_URL": self.house.ready["database_url"],
            "REDIS_URL": self.house.ready["redis_url"],
            "DAYBOOK_PUBLIC_URL": self.house.ready["base_url"],
        }
        log = state / "logs" / f"beside-{len(list((state / 'logs').glob('beside-*')))}.log"
        env = {**self.house.environment, **rings, **ready, **environment}
        process = spawn([sys.executable, "-m", *command], folder=ROOT, env=env, log=log)
        try:
            yield log
        finally:
            process.terminate()
            finish(process, grace_seconds=15)

    @contextmanager
    def held(self, point: str) -> Iterator[None]:
        """Hold who passes a failpoint (`label#1`: the first one only), from where it stands until the block ends."""
        folder = Path(self.house.environment["DAYBOOK_FAILPOINTS"])
        (folder / "passings").write_text("")
        (folder / "rules").write_text(f"{point}=hold")
        try:
            yield
        finally:
            (folder / "rules").write_text("")
            (folder / "holding").unlink(missing_ok=True)

    def await_held(self) -> None:
        """Wait until somebody stands at the failpoint."""
        holding = Path(self.house.environment["DAYBOOK_FAILPOINTS"]) / "holding"
        eventually(holding.exists, seconds=20)

    def await_beats(self, seconds: int = 3) -> None:
        """Wait until a beat's own task has run some seconds from now: beat ticks, and its sweeps have come round again."""
        later = self.house.sql("SELECT clock_timestamp() + %s * interval '1 second'", seconds)[0][0]
        eventually(lambda: self.house.sql("SELECT 1 FROM heartbeat WHERE name = 'beat' AND at > %s", later), seconds=20)

    def await_queued(self, count: int) -> None:
        """Wait until so many messages of the lane are in the broker and in nobody's hands."""
        eventually(lambda: int(self.valkey.llen("urgent")), until=lambda length: length >= count, seconds=20)

    # What must be true afterwards.

    def ends(self, events: Sequence[str], *, seconds: float = SETTLED_WITHIN) -> Counter[str]:
        """Wait until every event has ended, and count how."""
        eventually(lambda: self.asked(OPEN, events), until=lambda still: not still, seconds=seconds)
        return Counter(state for _, state in self.asked(ENDS, events))

    def asked(self, statement: str, events: Sequence[str]) -> list[tuple[Any, ...]]:
        """Ask the books about events; again when the database is only just coming back."""

        def ask() -> list[tuple[Any, ...]] | None:
            try:
                return self.house.sql(statement, list(events))
            except psycopg.OperationalError:
                return None

        rows = eventually(ask, until=lambda rows: rows is not None, seconds=30)
        assert rows is not None
        return rows

    def texts(self, events: Sequence[str]) -> dict[str, int]:
        """Count what the carrier took, by event: the outside truth."""
        book = self.house.client.get(f"{self.house.ready['simulator_url']}/_sim/accepted").json()
        taken = Counter(row["to"] for row in book)
        return {event_id: taken[self.numbers[event_id]] for event_id in events}

    def assert_one_text_each(self, events: Sequence[str]) -> None:
        """Check the happiest end: all delivered, exactly one text per person."""
        ends, texts = self.ends(events), self.texts(events)
        assert ends == {"delivered": len(events)}, ends
        assert set(texts.values()) == {1}, Counter(texts.values())

    def assert_balanced(self) -> None:
        """Check that the audit finds nothing."""
        told = self.house.daybook("audit", "--full")
        assert told.returncode == 0, told.stdout + told.stderr


TEMPLATES: Final = {"class-opening": "transactional", "tampered": "transactional", "lost": "transactional"}


def furnish(
    house: House,
    *,
    tenant: str,
    policy: Mapping[str, Any],
    templates: Mapping[str, str] = TEMPLATES,
    rate_per_second: int = 200,
    burst_count: int = 200,
) -> Crowd:
    """Add a tenant with these rules, a route to the house's simulator, and templates by name, each with its category."""
    engine = create_engine(database_url(house.ready["database_url"]), connect_args={"prepare_threshold": None})
    now = datetime(2026, 11, 15, tzinfo=UTC)
    with Session(engine, expire_on_commit=False) as session:
        tenant_id = add_tenant(session, name=tenant, now=now)
        key = add_key(session, tenant_id=tenant_id, name="test", scopes=("events:write", "events:read", "history:read"), now=now)
        store_policy(session, tenant_id=tenant_id, raw=policy, now=now)
        for name, category in templates.items():
            template = NewTemplate(name, category, ["class"], {"en": "A seat opened in {{ class }}."}, "en")
            publish_template(session, tenant_id=tenant_id, template=template, now=now)
        route = NewRoute(
            name=f"{tenant}-simulator",
            carrier="twilio",
            sender="+15005550006",
            settings={
                "base_url": house.ready["simulator_url"],
                "account_sid": DEVELOPMENT_ACCOUNT_SID,
                "first_check_seconds": "1",
                "settling_seconds": "2",
            },
            credentials={"auth_token": DEVELOPMENT_AUTH_TOKEN},
            countries=["US"],
            rate_per_second=rate_per_second,
            burst_count=burst_count,
        )
        add_route(session, tenant_id=tenant_id, route=route, public_url=house.ready["base_url"], now=now)
        session.commit()
    engine.dispose()
    return Crowd(house.as_tenant(key), tenant)
