"""The town that crash tests live in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from local.state import free_port
from simulator.server import Simulator
from tests.conftest import World
from tests.crash.town import Town, seed
from tests.e2e.house import ROOT, child_environment


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
