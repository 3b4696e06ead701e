"""What the tests of the command line may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from cli.main import main
from tests.conftest import World, wipe
from tests.ledger.lived import Lived, live

Run = Callable[..., Result]


@pytest.fixture
def daybook(world: World) -> Run:
    """Run one command of the command line, in a terminal of 100 columns."""
    del world  # it points the environment at the test's servers
    return lambda *arguments: CliRunner(env={"COLUMNS": "100"}).invoke(main, [str(each) for each in arguments])


@pytest.fixture
def lived(world: World) -> Iterator[Lived]:
    """Give a ledger with a past, committed, and wipe it afterwards."""
    yield live(world.engine)
    wipe(world)
