"""`daybook up` itself, with the real Procfile, real servers and workers, over stand-ins for web, tasks and commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from local.processes import fingerprint, wait_until
from local.state import State
from tests.conftest import ROOT

RUN: Final = """
import os, sys
from pathlib import Path
from app.ground.errors import DaybookError
from local.supervisor import Supervisor
try:
    Supervisor(Path(sys.argv[1]), os.environ, say=print).run(print)
except DaybookError as error:
    sys.exit(str(error))
"""
SHORT_PROCFILE: Final = (
    "release: not a process\n"
    'web: exec granian --interface wsgi --no-ws --host 127.0.0.1 --port "$PORT" web.wsgi:app\n'
    "beat: exec sleep 1000\n"
)  # fmt: skip
OURS: Final = ("DATABASE_URL", "REDIS_URL", "BROKER_URL", "DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING", "DAYBOOK_PUBLIC_URL", "PORT")


class Run:
    """One `up` in a checkout."""

    def __init__(self, checkout: Path, **env: str) -> None:
        self.checkout = checkout
        self.output = checkout / f"output-{len(list(checkout.glob('output-*')))}"
        bare = {name: value for name, value in os.environ.items() if name not in OURS}
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "-c", RUN, str(checkout)], stdout=output, stderr=output, cwd=ROOT, env=bare | env
            )

    @property
    def ready(self) -> dict[str, str]:
        """Wait until it announces that it is up, and read ready.json."""
        wait_until(lambda: self.is_announced() or self.process.poll() is not None, 60)
        assert self.is_announced(), self.output.read_text()
        found: dict[str, str] = json.loads((self.checkout / ".daybook" / "ready.json").read_text())
        return found

    def is_announced(self) -> bool:
        """Say whether it said that it is up."""
        return "Ready(" in self.output.read_text()

    def pids(self) -> dict[str, int]:
        """Give the pid of each recorded process."""
        rows: list[dict[str, Any]] = json.loads((self.checkout / ".daybook" / "run" / "processes.json").read_text())
        return {row["name"]: row["pid"] for row in rows}

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop, and wait."""
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def checkout(server_folder: Path) -> Iterator[Path]:
    """Give a checkout whose Procfile has a web process and a beat that only sleeps."""
    made = make_checkout(server_folder / "one")
    yield made
    forget(made)


def make_checkout(folder: Path) -> Path:
    """Make a folder with all that `up` needs of a checkout."""
    shutil.copytree(Path(__file__).parent / "checkout", folder)
    (folder / "Procfile").write_text(SHORT_PROCFILE)
    return folder


def forget(checkout: Path) -> None:
    """Remove the servers' data, which as root lies elsewhere."""
    if (checkout / ".daybook").exists():
        shutil.rmtree(State.of(checkout).servers)


def runs_of(ready: dict[str, str]) -> int:
    """Count how often this database was migrated: each run adds a row."""
    with psycopg.connect(ready["database_url"]) as connection:
        row = connection.execute("SELECT count(*) FROM kept").fetchone()
    assert row is not None
    return int(row[0])


def is_gone(pid: int) -> bool:
    """Say whether a process ended."""
    return fingerprint(pid) is None


@pytest.mark.processes
def test_up_runs_the_whole_procfile_and_takes_it_down_in_reverse(checkout: Path) -> None:
    shutil.copy(ROOT / "Procfile", checkout)
    run = Run(checkout)

    ready, pids = run.ready, run.pids()
    answer = httpx.get(f"{ready['base_url']}/health/ready", trust_env=False)
    mode = (checkout / ".daybook" / "ready.json").stat().st_mode & 0o777
    code = run.stop(signal.SIGINT)

    assert answer.text == "ready"
    assert set(ready) == {"base_url", "api_key", "operator_key", "simulator_url", "flower_url", "database_url", "redis_url"}
    assert ready["api_key"] == "key-of-the-api"
    assert mode == 0o600
    assert list(pids) == ["postgres", "valkey", "simulator", "web", "worker", "worker_bulk", "beat", "flower"]
    assert code == 0, run.output.read_text()
    assert all(is_gone(pid) for pid in pids.values())
    assert not (checkout / ".daybook" / "ready.json").exists()
    assert {log.stem for log in (checkout / ".daybook" / "logs").glob("*.log")} >= {
        "web",
        "worker",
        "worker_bulk",
        "beat",
        "flower",
    }


@pytest.mark.processes
def test_the_next_up_finds_data_ports_and_keys_again(checkout: Path) -> None:
    first = Run(checkout)
    before, rings = first.ready, (checkout / ".daybook" / "rings.json").read_text()
    first.stop()

    second = Run(checkout)
    after, count = second.ready, runs_of(second.ready)
    second.stop()

    assert after == before
    assert count == 2
    assert (checkout / ".daybook" / "rings.json").read_text() == rings
    assert (checkout / ".daybook" / "rings.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.processes
def test_what_dies_is_started_again_also_postgres(checkout: Path) -> None:
    run = Run(checkout)
    ready, before = run.ready, run.pids()

    for name in ("web", "postgres"):
        os.kill(before[name], signal.SIGKILL)
    dead = {before["web"], before["postgres"]}
    restarted = wait_until(lambda: not dead & set(run.pids().values()) and len(run.pids()) == len(before), 20)
    answers = wait_until(lambda: is_ready(ready["base_url"]), 10)
    count = runs_of(ready)
    run.stop()

    assert restarted
    assert answers
    assert count == 1


def is_ready(base_url: str) -> bool:
    """Say whether the web process answers."""
    try:
        return httpx.get(f"{base_url}/health/ready", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.mark.processes
def test_a_second_up_for_the_same_folder_says_so_and_leaves_the_first_alone(checkout: Path) -> None:
    first = Run(checkout)
    ready = first.ready

    second = Run(checkout)
    code = second.process.wait(20)
    still = is_ready(ready["base_url"])
    first.stop()

    assert code == 1
    assert f"already up in {checkout / '.daybook'} (pid {first.process.pid})" in second.output.read_text()
    assert still


@pytest.mark.processes
def test_up_recovers_from_a_run_that_was_killed(checkout: Path) -> None:
    first = Run(checkout)
    ready, before = first.ready, first.pids()

    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    second = Run(checkout)
    after, count = second.ready, runs_of(second.ready)
    gone = [is_gone(pid) for pid in before.values()]
    second.stop()

    assert after == ready
    assert count == 2
    assert all(gone)


@pytest.mark.processes
def test_two_checkouts_run_side_by_side(checkout: Path, server_folder: Path) -> None:
    other = make_checkout(server_folder / "two")
    one, two = Run(checkout), Run(other)

    ready = [one.ready, two.ready]
    counts = [runs_of(r) for r in ready]
    codes = [one.stop(), two.stop()]
    forget(other)

    assert ready[0]["base_url"] != ready[1]["base_url"]
    assert counts == [1, 1]
    assert codes == [0, 0]


@pytest.mark.processes
def test_up_uses_the_servers_that_the_environment_names(checkout: Path) -> None:
    database_url, redis_url = "postgres://nobody@127.0.0.1:1/x", "redis://127.0.0.1:1/0"

    run = Run(checkout, DATABASE_URL=database_url, REDIS_URL=redis_url, FAIL_AT="migrate")
    code = run.process.wait(20)

    assert code == 1
    assert "`daybook migrate` ended with 1" in run.output.read_text()
    assert "migrate cannot go on" in run.output.read_text()
    assert not list((checkout / ".daybook").glob("servers/*"))


@pytest.mark.processes
def test_a_process_that_crashes_at_start_fails_up_with_its_last_words(checkout: Path) -> None:
    (checkout / "Procfile").write_text(SHORT_PROCFILE + "worker: echo out of ink; exit 3\n")
    run = Run(checkout)

    code = run.process.wait(60)

    assert code == 1
    assert "worker ended 3 times while starting, at last with 3" in run.output.read_text()
    assert f"{checkout}/.daybook/logs/worker.log ends:" in run.output.read_text()
    assert "out of ink" in run.output.read_text()
    assert not (checkout / ".daybook" / "run" / "processes.json").exists()
