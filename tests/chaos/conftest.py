"""One running house for the troubles, with servers of its own that a test may kill: nobody else uses them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
import yaml

from local.state import temporary_folder
from tests.chaos.crowd import Crowd, furnish
from tests.conftest import World
from tests.e2e.conftest import SAMPLE, impatient_policy
from tests.e2e.house import child_environment, running_house

EMBEDDED: Final = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "DAYBOOK_PUBLIC_URL")
# Leases that run out while a test waits, and small pages, so that a crowd makes several messages.
SHORT: Final = {"DAYBOOK_HANDOFF_SECONDS": "4", "DAYBOOK_LEASE_SECONDS": "5", "DAYBOOK_WINDOW": "8"}


def hasty_policy() -> dict[str, Any]:
    """Give the sample policy without cooldowns, with waits of a second."""
    return impatient_policy(opens_at=datetime(2026, 11, 15, 8, tzinfo=UTC))


@pytest.fixture(scope="package")
def house(world: World) -> Iterator[Crowd]:
    """Give a running house whose Postgres and Valkey are its own; the rings are this run's, so that we can furnish it."""
    del world  # it put the rings into the environment
    with temporary_folder() as folder:
        (folder / "failpoints").mkdir()
        environment = {name: value for name, value in child_environment().items() if name not in EMBEDDED}
        environment |= SHORT | {"DAYBOOK_FAILPOINTS": str(folder / "failpoints")}
        with running_house(folder, environment) as running:
            crowd = furnish(running, tenant="hasty", policy=hasty_policy())
            yield crowd
            crowd.valkey.close()


@pytest.fixture(scope="package")
def patient(house: Crowd) -> Iterator[Crowd]:
    """Give the same house with the key of a tenant whose people are left alone for ten minutes after a text."""
    policy = yaml.safe_load(SAMPLE.read_text())
    assert policy["categories"]["transactional"]["cooldown"] == "10m"
    crowd = furnish(house.house, tenant="patient", policy=policy)
    yield crowd
    crowd.valkey.close()


@pytest.fixture(scope="module", autouse=True)
def _balanced(house: Crowd) -> Iterator[None]:
    """Audit everything after the troubles of a file."""
    yield
    house.assert_balanced()
