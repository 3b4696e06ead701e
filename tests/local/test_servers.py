import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import psycopg
import pytest
import redis

from local import postgres, valkey
from local.postgres import start_postgres
from local.processes import PortTaken, Server, stop, wait_until
from local.state import free_port
from local.valkey import start_valkey


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Stop a server that a test started."""
    assert server.process is not None
    number = postgres.STOP_SIGNAL if server.url.startswith("postgresql") else valkey.STOP_SIGNAL
    try:
        yield server
    finally:
        stop(server.process, number=number, grace_seconds=10)


def kill(server: Server) -> None:
    """Kill a server as a crash would."""
    assert server.process is not None
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()


def test_postgres_keeps_what_it_committed_through_kill_9(server_folder: Path) -> None:
    port = free_port()
    first = start_postgres(server_folder / "a", port)
    with psycopg.connect(first.url) as connection:
        connection.execute("CREATE TABLE kept AS SELECT generate_series(1, 1000) AS n")

    kill(first)

    with running(start_postgres(server_folder / "a", port)) as second, psycopg.connect(second.url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (1000,)
        assert connection.execute("SHOW fsync").fetchone() == ("on",)


def test_valkey_keeps_what_it_wrote_through_kill_9(server_folder: Path) -> None:
    port = free_port()
    first = start_valkey(server_folder / "a", port)
    with redis.Redis.from_url(first.url) as client:
        client.set("kept", "yes")

    kill(first)

    with running(start_valkey(server_folder / "a", port)) as second, redis.Redis.from_url(second.url) as client:
        assert client.get("kept") == b"yes"


def test_a_second_start_joins_the_server_that_runs(server_folder: Path) -> None:
    with (
        running(start_postgres(server_folder / "p", free_port(), durable=False)) as database,
        running(start_valkey(server_folder / "v", free_port(), durable=False)) as broker,
    ):
        database_port, broker_port = (int(server.url.rpartition(":")[2].partition("/")[0]) for server in (database, broker))

        assert start_postgres(server_folder / "p", database_port) == Server(database.url, database.pid, None)
        assert start_valkey(server_folder / "v", broker_port) == Server(broker.url, broker.pid, None)


def test_postgres_joins_no_other_postgres(server_folder: Path) -> None:
    """Joining whatever answers would write this checkout's books into another's."""
    port = free_port()
    with running(start_postgres(server_folder / "theirs", port, durable=False)), pytest.raises(PortTaken, match=str(port)):
        start_postgres(server_folder / "ours", port)


@pytest.mark.parametrize("password", ["", "requirepass theirs"])
def test_valkey_joins_no_other_valkey(server_folder: Path, password: str) -> None:
    """A server without a password accepts ours, so being let in proves nothing."""
    port = free_port()
    with running(start_valkey(server_folder / "theirs", port, durable=False)) as theirs:
        with redis.Redis.from_url(theirs.url) as client:
            client.config_set("requirepass", password.removeprefix("requirepass").strip())

        with pytest.raises(PortTaken, match=str(port)):
            start_valkey(server_folder / "ours", port)


def test_a_port_of_a_program_that_is_no_database_is_refused(server_folder: Path) -> None:
    port = free_port()
    web = Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)], stdout=DEVNULL, stderr=DEVNULL)
    try:
        wait_for_port(port)

        with pytest.raises(PortTaken, match=str(port)):
            start_postgres(server_folder / "p", port)
        with pytest.raises(PortTaken, match=str(port)):
            start_valkey(server_folder / "v", port)
    finally:
        stop(web, number=signal.SIGTERM, grace_seconds=5)


def wait_for_port(port: int) -> None:
    """Wait until somebody listens."""

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    assert wait_until(listens, 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user to run Postgres as")
def test_as_root_postgres_runs_as_nobody(server_folder: Path) -> None:
    with running(start_postgres(server_folder / "p", free_port(), durable=False)) as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid != 0


def test_passwords_are_for_us_alone(server_folder: Path) -> None:
    with (
        running(start_postgres(server_folder / "p", free_port(), durable=False)),
        running(start_valkey(server_folder / "v", free_port(), durable=False)),
    ):
        modes = [(server_folder / name / "password").stat().st_mode & 0o777 for name in ("p", "v")]

        assert modes == [0o600, 0o600]
