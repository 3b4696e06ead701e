"""What every test may ask for: a real Postgres and Valkey, a session that is rolled back, a database wiped afterwards."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import redis
from alembic import command
from sqlalchemy import Engine, MetaData, Table, create_engine, text
from sqlalchemy.orm import Session

from app.ground.config import settings
from app.ground.db import engine
from local import postgres, valkey
from local.migrations import alembic_config
from local.postgres import start_postgres
from local.processes import stop
from local.state import free_port, new_ring, temporary_folder
from local.valkey import start_valkey

ROOT: Final = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class World:
    """The servers of one test run."""

    engine: Engine
    valkey: redis.Redis
    first_rows: Mapping[Table, Sequence[Mapping[str, Any]]]
    """Every table, and the rows that the migrations themselves put in."""


@pytest.fixture
def server_folder() -> Iterator[Path]:
    """Give a test that starts servers of its own a folder for them."""
    with temporary_folder() as folder:
        yield folder


@contextmanager
def _servers() -> Iterator[tuple[str, str]]:
    """Start what TEST_DATABASE_URL and TEST_REDIS_URL do not name, and stop it at the end."""
    with ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        database_url = os.environ.get("TEST_DATABASE_URL")
        if not database_url:
            server = start_postgres(folder / "postgres", free_port(), durable=False)
            assert server.process is not None
            stack.callback(stop, server.process, number=postgres.STOP_SIGNAL, grace_seconds=10)
            database_url = server.url
        redis_url = os.environ.get("TEST_REDIS_URL")
        if not redis_url:
            server = start_valkey(folder / "valkey", free_port(), durable=False)
            assert server.process is not None
            stack.callback(stop, server.process, number=valkey.STOP_SIGNAL, grace_seconds=10)
            redis_url = server.url
        yield database_url, redis_url


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """Give the servers of this run, migrated, with the environment pointing at them."""
    with _servers() as (database_url, redis_url), pytest.MonkeyPatch.context() as environ:
        environ.setenv("DATABASE_URL", database_url)
        environ.setenv("REDIS_URL", redis_url)
        environ.setenv("BROKER_URL", redis_url)
        environ.setenv("DAYBOOK_KEY_RING", new_ring())
        environ.setenv("DAYBOOK_HASH_RING", new_ring())
        environ.setenv("DAYBOOK_PUBLIC_URL", "http://127.0.0.1:8000")
        settings.cache_clear()
        migrate()
        with redis.Redis.from_url(redis_url) as client, _engine() as own:
            yield World(own, client, _first_rows(own))


@contextmanager
def _engine() -> Iterator[Engine]:
    """Give the tests an engine of their own, and at the end close also what the code under test opened."""
    own = create_engine(settings().database_url, connect_args={"prepare_threshold": None})
    try:
        yield own
    finally:
        own.dispose()
        engine().dispose()


def migrate() -> None:
    """Bring the database of the settings to the head revision."""
    command.upgrade(alembic_config(settings().database_url), "head")


def _first_rows(own: Engine) -> Mapping[Table, Sequence[Mapping[str, Any]]]:
    """Read every table as the migrations left it; from the database, so that it holds whatever the models say."""
    metadata = MetaData()
    metadata.reflect(own)
    with own.connect() as connection:
        return {
            table: [dict(row) for row in connection.execute(table.select()).mappings()]
            for table in metadata.sorted_tables
            if table.name != "alembic_version"
        }


@pytest.fixture
def session(world: World) -> Iterator[Session]:
    """Give a session in a transaction that is rolled back, whatever the test commits."""
    with world.engine.connect() as connection:
        outer = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as opened:
            yield opened
        outer.rollback()


@pytest.fixture
def fresh_database(world: World) -> Iterator[Engine]:
    """Let a test commit; afterwards the database is as migrated, and Valkey is empty."""
    yield world.engine
    wipe(world)


def wipe(world: World) -> None:
    """Put database and Valkey back to where they were after migrating."""
    names = ", ".join(f'"{table.name}"' for table in world.first_rows)
    with world.engine.begin() as connection:
        # A transaction that a test forgot must fail this here, not hang it.
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        connection.execute(text("SET LOCAL daybook.retention = 'on'"))  # else append-only tables refuse
        connection.execute(text(f"TRUNCATE {names} CASCADE"))
        for table, rows in world.first_rows.items():
            if rows:
                connection.execute(table.insert(), [dict(row) for row in rows])
    world.valkey.flushdb()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a carrier peer that is not there is a failure: a skip would hide that nothing was tested."""
    del call
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("peer"):
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} needs its peer, and CI=true lets no peer test be skipped (`make peers`)"
    return report
