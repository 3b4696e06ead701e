"""Whether what was started also works: each process is asked in the way its users would."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx

PING_SECONDS: Final = 20.0


def answers(url: str, *, status: int | None = None) -> bool:
    """Say whether something answers there over HTTP, with this status if one is given."""
    try:
        # The loopback is asked directly, whatever proxy the environment names.
        answer = httpx.get(url, timeout=3.0, trust_env=False)
    except httpx.HTTPError:
        return False
    return status is None or answer.status_code == status


def workers_answer(pids: Mapping[str, int], *, folder: Path, env: Mapping[str, str]) -> bool:
    """Say whether each Celery worker answers a ping over the broker; the Procfile names a node by its pid."""
    nodes = [f"{name}-{pid}@{socket.gethostname()}" for name, pid in pids.items()]
    return not nodes or set(nodes) <= _ping(nodes, folder=folder, env=env)


def _ping(nodes: Sequence[str], *, folder: Path, env: Mapping[str, str]) -> set[str]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "tasks.celery",
        "inspect",
        "ping",
        "--json",
        "-t",
        "3",
        "-d",
        ",".join(nodes),
    ]
    try:
        asked = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=PING_SECONDS)
        return set(json.loads(asked.stdout))
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return set()
