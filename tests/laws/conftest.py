"""The houses that histories are played in: committed once, since every history is rolled back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import World, wipe
from tests.laws.real import Houses, build_houses


@pytest.fixture(scope="module")
def houses(world: World) -> Iterator[Houses]:
    """Give a house per set of rules."""
    yield build_houses(world.engine)
    wipe(world)
