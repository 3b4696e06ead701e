"""Debian's PgBouncer in transaction mode, in front of a database: connections that belong to nobody between transactions."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import pytest

from local.processes import spawn, stop
from local.state import free_port, temporary_folder
from tests.awaiting import eventually

PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")

needs_pgbouncer = pytest.mark.skipif(PGBOUNCER is None, reason="no pgbouncer: make peers")

CONFIG: Final = """
[databases]
* = host=127.0.0.1 port={port} user={user} password={password}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
"""


@contextmanager
def bounced(direct: str) -> Iterator[str]:
    """Run a PgBouncer before a Postgres; give the URL by which the same database is reached through six connections."""
    parts, listen = urlsplit(direct), free_port()
    user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
    with temporary_folder() as folder:
        config = folder / "pgbouncer.ini"
        config.write_text(CONFIG.format(port=parts.port, user=parts.username, password=parts.password, listen=listen))
        assert PGBOUNCER is not None
        process = spawn([PGBOUNCER, config], folder=folder, log=folder / "pgbouncer.log", user=user)
        try:
            eventually(lambda: answers(listen))
            yield f"postgres://{parts.username}:any@127.0.0.1:{listen}{parts.path}"
        finally:
            stop(process, number=signal.SIGTERM, grace_seconds=5)


def answers(port: int) -> bool:
    """Say whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
