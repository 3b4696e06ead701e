"""A house behind PgBouncer in transaction mode: no statement of ours needs a session."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import psycopg
import pytest

from local.processes import spawn, stop
from local.state import free_port, temporary_folder
from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import Crowd, furnish
from tests.e2e.house import House

PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.peer,
    pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer: make peers"),
]

CONFIG: Final = """
[databases]
* = host=127.0.0.1 port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
"""


@pytest.fixture(scope="module")
def bouncer(house: Crowd) -> Iterator[str]:
    """Give the URL of a database of its own in the house's Postgres, through six server connections."""
    direct = house.house.ready["database_url"].replace("+psycopg", "")
    with psycopg.connect(direct, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bounced")
    parts, listen = urlsplit(direct), free_port()
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    with temporary_folder() as folder:
        config = folder / "pgbouncer.ini"
        config.write_text(CONFIG.format(port=parts.port, user=parts.username, password=parts.password, listen=listen))
        assert PGBOUNCER is not None
        process = spawn([PGBOUNCER, config], folder=folder, log=folder / "pgbouncer.log", user=user)
        try:
            eventually(lambda: answers(listen))
            yield f"postgres://{parts.username}:any@127.0.0.1:{listen}/bounced"
        finally:
            stop(process, number=signal.SIGTERM, grace_seconds=5)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_crowd_through_six_connections_that_nobody_owns(house: Crowd, bouncer: str) -> None:
    """All of Daybook in one process (tests/crash/life.py): what may need a session is SQL, not Celery."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    redis_url = house.house.ready["redis_url"].removesuffix("/0") + "/4"
    ours = {"DATABASE_URL": bouncer, "REDIS_URL": redis_url, "DAYBOOK_PUBLIC_URL": url, "DAYBOOK_FAILPOINTS": ""}
    with house.beside("cli", "migrate", **ours) as log:
        eventually(lambda: is_migrated(bouncer), seconds=30)
    with house.beside("tests.crash.life", str(port), **ours):
        eventually(lambda: answers(port), seconds=30)
        ready = {**house.house.ready, "base_url": url, "database_url": bouncer}
        environment = {**house.house.environment, **ours}
        behind = House(ready, house.house.process, house.house.folder, environment, client=house.house.client)
        crowd = furnish(behind, tenant="bounced", policy=hasty_policy())
        crowd.slow(low_ms=20, high_ms=300)
        events = crowd.post(10) + crowd.post_together(20)

        crowd.assert_one_text_each(events)
        crowd.assert_balanced()
    assert "error" not in log.read_text()


def is_migrated(url: str) -> bool:
    with psycopg.connect(url, prepare_threshold=None) as connection:
        found = connection.execute("SELECT to_regclass('alembic_version') IS NOT NULL").fetchone()
    return bool(found and found[0])
