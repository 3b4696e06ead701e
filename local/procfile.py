"""The Procfile: which processes make up Daybook, and how each is started."""

from __future__ import annotations

import re
from pathlib import Path

from app.ground.errors import DaybookError


class BadProcfile(DaybookError):
    """A line of the Procfile is not `name: command`."""


def read_procfile(file: Path) -> dict[str, str]:
    """Read name and command of each process, in the file's order; `release` is a step, not a process, and left out."""
    processes = {}
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = re.fullmatch(r"([A-Za-z0-9_]+):\s*(\S.*)", line.rstrip())
        if found is None:
            raise BadProcfile(f"{file}, line {number}: expected `name: command`")
        processes[found[1]] = found[2]
    processes.pop("release", None)
    return processes
