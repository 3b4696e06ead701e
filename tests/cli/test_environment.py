"""A command in a second terminal finds the running Daybook; the environment goes first where it says something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.flows.heartbeat import beat
from app.ground.config import settings
from cli.environment import CHECKOUT, NoRings, NotUp, complete
from local.state import new_ring

RINGS = {"DAYBOOK_KEY_RING": new_ring(), "DAYBOOK_HASH_RING": new_ring()}
READY = {
    "database_url": "postgresql://here/db",
    "redis_url": "redis://here/0",
    "base_url": "http://127.0.0.1:8000",
    "api_key": "k",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Give an environment that names nothing but a folder where a Daybook is up."""
    (tmp_path / "ready.json").write_text(json.dumps(READY))
    (tmp_path / "rings.json").write_text(json.dumps(RINGS))
    return {"DAYBOOK_STATE": str(tmp_path)}


def test_the_running_daybook_completes_an_empty_environment(environ: dict[str, str]) -> None:
    complete(environ)

    assert environ["DATABASE_URL"] == READY["database_url"]
    assert environ["REDIS_URL"] == READY["redis_url"]
    assert environ["DAYBOOK_PUBLIC_URL"] == READY["base_url"]
    assert {name: environ[name] for name in RINGS} == RINGS


def test_an_environment_that_names_a_database_is_left_alone(environ: dict[str, str]) -> None:
    environ["DATABASE_URL"] = "postgresql://elsewhere/db"
    before = dict(environ)

    complete(environ)

    assert environ == before


def test_a_ring_of_the_environment_goes_first(environ: dict[str, str]) -> None:
    environ["DAYBOOK_HASH_RING"] = "given"

    complete(environ)

    assert (environ["DAYBOOK_HASH_RING"], environ["DAYBOOK_KEY_RING"]) == ("given", RINGS["DAYBOOK_KEY_RING"])


def test_nothing_up_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotUp, match="run `daybook up`"):
        complete({"DAYBOOK_STATE": str(tmp_path)})


def test_rings_that_came_from_outside_are_asked_for(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "rings.json").unlink()

    with pytest.raises(NoRings, match="DAYBOOK_KEY_RING and DAYBOOK_HASH_RING"):
        complete(environ)


@pytest.mark.usefixtures("world", "fresh_database")
def test_a_second_terminal_needs_no_environment(environ: dict[str, str], tmp_path: Path) -> None:
    beat()
    url = settings().database_url.replace("+psycopg", "")
    (tmp_path / "ready.json").write_text(json.dumps(READY | {"database_url": url}))
    command = [sys.executable, "-m", "cli", "doctor"]

    told = subprocess.run(command, cwd=CHECKOUT, env=environ | {"PATH": os.defpath}, capture_output=True, text=True, check=False)

    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("healthy")
