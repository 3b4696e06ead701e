"""A house put together by hand, of which some processes live in another time than Postgres."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from local.health import answers
from local.processes import finish, spawn, tail
from local.procfile import read_procfile
from local.state import free_port
from simulator.server import Simulator
from tests.awaiting import eventually
from tests.e2e.house import ROOT, House

LIBRARIES: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib")
FAKETIME: Final = next(
    (file for folder in LIBRARIES for file in [Path(folder, "faketime", "libfaketimeMT.so.1")] if file.exists()), None
)

needs_faketime = pytest.mark.skipif(FAKETIME is None, reason="no libfaketime: make peers")


def at(offset: str) -> dict[str, str]:
    """Give what a process must be started with so that its wall clock is off; durations stay what they are."""
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent / "faketime"), os.environ.get("PYTHONPATH")])),
    }


@contextmanager
def skewed_house(folder: Path, environment: Mapping[str, str], offsets: Mapping[str, str]) -> Iterator[House]:
    """Run the Procfile's processes, each with the offset of its name; the simulator and all others keep the true time."""
    port = str(free_port())
    base_url = f"http://127.0.0.1:{port}"
    own = {
        **environment,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}",
        "PORT": port,
        "DAYBOOK_HOST": "127.0.0.1",
        "DAYBOOK_PUBLIC_URL": base_url,
        "PYTHONUNBUFFERED": "1",
    }
    (folder / "state" / "logs").mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "cli", "migrate"], cwd=ROOT, env=own, check=True, capture_output=True)
    with ExitStack() as stack:
        carrier = stack.enter_context(Simulator(seed=7, retry_spacing=0.05))
        processes = {}
        for name, line in read_procfile(ROOT / "Procfile").items():
            if name == "flower":
                continue
            env = own | (at(offsets[name]) if name in offsets else {})
            log = folder / "state" / "logs" / f"{name}.log"
            processes[name] = spawn(["/bin/sh", "-c", line], folder=ROOT, env=env, log=log)
            stack.callback(finish, processes[name], grace_seconds=25)
            stack.callback(processes[name].terminate)
        eventually(lambda: answers(f"{base_url}/health/ready", status=200), seconds=60)
        ready = {
            "base_url": base_url,
            "api_key": "of whoever moves in",
            "simulator_url": carrier.url,
            "database_url": own["DATABASE_URL"],
            "redis_url": own["REDIS_URL"],
        }
        house = House(ready, processes["web"], folder, own)
        stack.callback(house.client.close)
        yield house


def log_of(house: House, name: str) -> str:
    """Read the end of a process's log."""
    return tail(house.folder / "state" / "logs" / f"{name}.log", lines=10_000)
