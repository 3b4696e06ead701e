"""The house that is measured: durable servers of its own, the Procfile's processes, and a scratch database beside it."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, LiteralString

import psycopg
from alembic import command

from app.ground.errors import DaybookError
from local import postgres, valkey
from local.health import answers, workers_answer
from local.migrations import alembic_config
from local.postgres import start_postgres
from local.processes import spawn, stop, tail, wait_until
from local.procfile import read_procfile
from local.state import free_port, new_ring, temporary_folder
from local.valkey import start_valkey

ROOT: Final = Path(__file__).resolve().parent.parent
SCRATCH: Final = "scratch"
READY_SECONDS: Final = 120.0
# Rules, routes, templates and keys stay; everything that an event leaves behind goes.
KEPT: Final = frozenset(
    {"alembic_version", "tenant", "api_key", "policy_version", "template_version", "route", "feed_state", "heartbeat"}
)
SIZES: Final = "SELECT relname, pg_total_relation_size(relid) FROM pg_stat_user_tables"
TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


class NeverReady(DaybookError):
    """A process of the house did not answer; the message ends with its log."""


@dataclass
class House:
    """Servers, settings and folders of one run of the figures."""

    folder: Path
    database_url: str
    redis_url: str
    env: dict[str, str] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    """What runs now, by name: the servers, and the Procfile's processes."""

    @property
    def base_url(self) -> str:
        """Where the web process answers."""
        return self.env["DAYBOOK_PUBLIC_URL"]

    @property
    def scratch_url(self) -> str:
        """Where the counterparts write: the same server, the same migrations."""
        return self.database_url.removesuffix("/postgres") + f"/{SCRATCH}"

    @property
    def broker_url(self) -> str:
        """The same broker for plain Celery, apart from our queues."""
        return self.redis_url.removesuffix("/0") + "/1"

    def log(self, name: str) -> Path:
        """Give the log of one of our children."""
        return self.folder / f"{name}.log"

    @contextmanager
    def running(self, *names: str) -> Iterator[dict[str, int]]:
        """Run these processes of the Procfile until the block ends; give their pids."""
        lines = read_procfile(ROOT / "Procfile")
        with ExitStack() as stack:
            pids = {name: stack.enter_context(self.child(name, ["/bin/sh", "-c", lines[name]])).pid for name in names}
            self._wait_until_ready(pids)
            yield pids

    @contextmanager
    def child(self, name: str, command_line: Sequence[str], **env: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run one process in the house's environment, and what is added to it, until the block ends."""
        process = spawn(command_line, folder=ROOT, env=self.env | env, log=self.log(name))
        self.pids[name] = process.pid
        try:
            yield process
        finally:
            del self.pids[name]
            stop(process, number=signal.SIGTERM, grace_seconds=20)

    def _wait_until_ready(self, pids: dict[str, int]) -> None:
        workers = {name: pid for name, pid in pids.items() if name.startswith("worker")}
        if "web" in pids and not wait_until(lambda: answers(f"{self.base_url}/health/ready", status=200), READY_SECONDS):
            raise NeverReady(f"web did not answer:\n{tail(self.log('web'))}")
        if not wait_until(lambda: workers_answer(workers, folder=ROOT, env=self.env), READY_SECONDS):
            raise NeverReady("\n".join(f"{name}:\n{tail(self.log(name))}" for name in workers))

    def wipe(self, *, scratch: bool) -> None:
        """Empty one of the two databases of all that events left there, and write out what is dirty."""
        with self.connect(scratch=scratch) as connection:
            names = [name for (name,) in connection.execute(TABLES) if name not in KEPT]
            with connection.transaction():
                connection.execute("SET LOCAL lock_timeout = '20s'")
                connection.execute("SET LOCAL daybook.retention = 'on'")  # else append-only tables refuse
                connection.execute(sql(f"TRUNCATE {', '.join(names)} CASCADE"))
            connection.execute("CHECKPOINT")

    def connect(self, *, scratch: bool = False) -> psycopg.Connection[Any]:
        """Connect past the application: the figures look from outside."""
        return psycopg.connect(self.scratch_url if scratch else self.database_url, autocommit=True)

    def weigh(self, *, scratch: bool) -> int:
        """Give the bytes, indexes included, that events left in one of the two databases."""
        with self.connect(scratch=scratch) as connection:
            return sum(int(size) for name, size in connection.execute(SIZES) if name not in KEPT)

    def count(self, statement: str, *, scratch: bool = False) -> int:
        """Run one statement that answers with a number."""
        with self.connect(scratch=scratch) as connection:
            row = connection.execute(sql(statement)).fetchone()
        return int(row[0]) if row else 0


def sql(text: str) -> LiteralString:
    """Vouch for a statement that was put together from names and literals of our own."""
    return text  # no value of a stranger comes near the figures


@contextmanager
def open_house() -> Iterator[House]:
    """Start the servers as `make up` does, migrate both databases, and point this process at the first."""
    logging.getLogger("alembic").setLevel(logging.WARNING)
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        database = start_postgres(folder / "postgres", free_port(), durable=True)
        if database.process is not None:
            stack.callback(stop, database.process, number=postgres.STOP_SIGNAL, grace_seconds=10)
        redis = start_valkey(folder / "valkey", free_port(), durable=True)
        if redis.process is not None:
            stack.callback(stop, redis.process, number=valkey.STOP_SIGNAL, grace_seconds=10)
        house = House(folder, database.url, redis.url, pids={"postgres": database.pid, "valkey": redis.pid})
        house.env = _environment(house)
        os.environ.update(house.env)  # the figures also call the application in this process
        with house.connect() as connection:
            connection.execute(sql(f"CREATE DATABASE {SCRATCH}"))
        for url in (house.database_url, house.scratch_url):
            command.upgrade(alembic_config(url), "head")
        yield house


def _environment(house: House) -> dict[str, str]:
    port = free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DAYBOOK_", "DYNO", "PYTEST_"))}
    return inherited | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONUNBUFFERED": "1",
        "DATABASE_URL": house.database_url,
        "REDIS_URL": house.redis_url,
        "BROKER_URL": house.redis_url,
        "DAYBOOK_HOST": "127.0.0.1",
        "PORT": str(port),
        "DAYBOOK_PUBLIC_URL": f"http://127.0.0.1:{port}",
        "DAYBOOK_KEY_RING": new_ring(),
        "DAYBOOK_HASH_RING": new_ring(),
        "BENCH_COUNTED": str(house.folder / "counted"),
    }


def stopwatch() -> float:
    """Read the clock of all figures, in seconds."""
    return time.perf_counter()
