"""A house behind PgBouncer in transaction mode: no statement of ours needs a session."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from local.state import free_port
from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import Crowd, furnish
from tests.e2e.bouncer import answers, bounced, needs_pgbouncer
from tests.e2e.house import House

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.peer, needs_pgbouncer]


@pytest.fixture(scope="module")
def bouncer(house: Crowd) -> Iterator[str]:
    """Give the URL of a database of its own in the house's Postgres, through six server connections."""
    direct = house.house.ready["database_url"].replace("+psycopg", "")
    with psycopg.connect(direct, autocommit=True) as connection:
        connection.execute("CREATE DATABASE bounced")
    with bounced(urlsplit(direct)._replace(path="/bounced").geturl()) as url:
        yield url


def test_a_crowd_through_six_connections_that_nobody_owns(house: Crowd, bouncer: str) -> None:
    """All of Daybook in one process (tests/crash/life.py): what may need a session is SQL, not Celery."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    redis_url = house.house.ready["redis_url"].removesuffix("/0") + "/4"
    ours = {"DATABASE_URL": bouncer, "REDIS_URL": redis_url, "DAYBOOK_PUBLIC_URL": url, "DAYBOOK_FAILPOINTS": ""}
    ready = {**house.house.ready, "base_url": url, "database_url": bouncer}
    environment = {**house.house.environment, **ours}
    behind = House(ready, house.house.process, house.house.folder, environment, client=house.house.client)
    migrated = behind.daybook("migrate")
    assert migrated.returncode == 0, migrated.stderr
    with house.beside("tests.crash.life", str(port), **ours):
        eventually(lambda: answers(port), seconds=30)
        crowd = furnish(behind, tenant="bounced", policy=hasty_policy())
        crowd.slow(low_ms=20, high_ms=300)
        events = crowd.post(10) + crowd.post_together(20)

        crowd.assert_one_text_each(events)
        crowd.assert_balanced()
