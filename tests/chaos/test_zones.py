"""The suite's answers are the same on machines that live elsewhere: by their own zone, their zone files and Postgres's zone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final

import psycopg
import pytest
from psycopg.sql import SQL, Identifier, Literal

from tests.conftest import World
from tests.e2e.house import ROOT, environment_of
from tests.making import together

pytestmark = pytest.mark.chaos

TOKYO, NEW_YORK = "Asia/Tokyo", "America/New_York"
# What looks at a clock, a calendar or an instant, of each layer, and takes seconds.
TESTS: Final = (
    "tests/policy/test_hours.py",
    "tests/policy/test_replay.py",
    "tests/policy/test_rules.py",
    "tests/policy/test_sample.py",
    "tests/people/test_consents.py",
    "tests/ledger/test_decide.py",
    "tests/desk/test_publish.py",
    "tests/cli/test_policy_explain.py",
)
SLOW: Final = "not asked_before and not first_open_minute and not when_its_time_comes"
PYTEST: Final = (
    *(sys.executable, "-m", "pytest", *TESTS, "-m", "not processes", "-k", SLOW),
    *("-q", "-n", "0", "-p", "no:cacheprovider"),
)


def living_in(world: World, zone: str, *, redis_db: int) -> dict[str, str]:
    """Give the environment of a machine without zone files that lives in a zone, as its Postgres does."""
    name = f"lives_in_{zone.rpartition('/')[2].lower()}"
    environment = environment_of(world.engine.url, name, redis_db=redis_db)
    server = environment["DATABASE_URL"].replace("postgres://", "postgresql://", 1)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("ALTER DATABASE {} SET timezone = {}").format(Identifier(name), Literal(zone)))
    tests = {"TEST_DATABASE_URL": environment["DATABASE_URL"], "TEST_REDIS_URL": environment["REDIS_URL"]}
    return environment | tests | {"TZ": zone, "PYTHONTZPATH": "/nowhere"}


def run(environment: Mapping[str, str], *arguments: str) -> str:
    """Run the tests, or list them; give what pytest says."""
    command = (*PYTEST, *arguments)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == pytest.ExitCode.OK, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def count(said: str, what: str) -> int:
    """Read a number off pytest's last line."""
    return int(re.findall(rf"^(\d+)(?:/\d+)? (?:tests )?{what}", said, re.MULTILINE)[-1])


def test_as_many_pass_in_tokyo_and_in_new_york_as_there_are_in_utc(world: World) -> None:
    tokyo, new_york = living_in(world, TOKYO, redis_db=10), living_in(world, NEW_YORK, redis_db=12)
    listed = count(run(tokyo | {"TZ": "UTC"}, "--collect-only"), "collected")

    said = together(partial(run, tokyo), partial(run, new_york))

    assert [count(each, "passed") for each in said] == [listed, listed]
    assert listed > 200
