"""What a killed run left behind: recorded while it lives, ended by the next."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from local.child import Child
from local.processes import carries, end, fingerprint, session_members, wait_until
from local.state import write_private

MARK_NAME: Final = "DAYBOOK_STATE"
"""In the environment of every process of a run: the state folder it belongs to."""
GRACE_SECONDS: Final = 10.0


def record(file: Path, children: Iterable[Child]) -> None:
    """Write down which processes are ours, each with what tells it from a later one with the same pid."""
    rows = [
        {"name": c.name, "pid": c.process.pid, "mark": mark, "signal": int(c.stop_signal)}
        for c in children
        if c.process is not None and (mark := fingerprint(c.process.pid)) is not None
    ]
    write_private(file, json.dumps(rows, indent=1))


def end_leftovers(file: Path, folder: Path) -> list[str]:
    """End what the run that wrote `file` left running, last started first; return the names of what was ended."""
    if not file.exists():
        return []
    ended = []
    for row in reversed(json.loads(file.read_text())):
        pid, mark = row["pid"], row["mark"]
        members = _left_of(pid, mark, folder)
        if members:
            end(pid, mark, number=signal.Signals(row["signal"]), grace_seconds=GRACE_SECONDS)
            _kill_rest(pid, members)
            ended.append(row["name"])
    file.unlink()
    return ended


def _left_of(pid: int, mark: str, folder: Path) -> set[int]:
    """Find what lives of a recorded process and its children; nothing where the pid is a stranger's by now."""
    now = fingerprint(pid)
    if now == mark:
        return {pid, *session_members(pid)}
    if now is not None:
        return set()
    # The leader is gone, its children may not be; while one lives, the kernel gives the leader's pid to nobody.
    return {member for member in session_members(pid) if carries(member, MARK_NAME, str(folder))}


def _kill_rest(session: int, members: set[int]) -> None:
    """Let the children of an ended process leave by themselves for a moment, then kill them."""

    def rest() -> set[int]:
        return members & set(session_members(session))

    if not wait_until(lambda: not rest(), 2.0):
        for member in rest():
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        wait_until(lambda: not rest(), 5.0)
