"""The life of one text once more, in a house whose every process reaches Postgres through PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.conftest import World
from tests.e2e.bouncer import bounced, needs_pgbouncer
from tests.e2e.conftest import HURRIED, furnish_impatient
from tests.e2e.house import House, environment_of, running_house
from tests.e2e.test_thread import *  # noqa: F403 - every test of the thread, also those that are still to be written

# In place of the thread's own, which came along.
pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.peer, needs_pgbouncer]  # type: ignore[assignment]


@pytest.fixture(scope="module")
def house(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Give a running house that knows no other way to its database."""
    environment = environment_of(world.engine.url, "bounced", redis_db=7) | HURRIED
    with bounced(environment["DATABASE_URL"]) as url:
        environment["DATABASE_URL"] = url
        with running_house(tmp_path_factory.mktemp("bounced"), environment) as running:
            assert urlsplit(running.ready["database_url"]).port == urlsplit(url).port
            yield running


@pytest.fixture(scope="module")
def tenant(house: House) -> House:
    """Give this house with the key of a tenant whose rules wait seconds, not minutes."""
    return furnish_impatient(house)


@pytest.fixture(scope="module")
def offer(tenant: House) -> dict[str, Any]:
    """Give the offer that was posted before its hours opened."""
    assert tenant.offer is not None
    return tenant.offer
