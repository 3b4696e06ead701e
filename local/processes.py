"""Processes: started so that they die with us, told apart from strangers, ended for certain."""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.ground.errors import DaybookError

PR_SET_PDEATHSIG: Final = 1
PROC: Final = Path("/proc")
PAUSE_SECONDS: Final = 0.05
# Loaded before any fork: between fork and exec nothing may be imported or opened.
_LIBC: Final = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class PortTaken(DaybookError):
    """The port belongs to a server that is not ours."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that answers: its URL, its pid, and its process where it is our own child."""

    url: str
    pid: int
    process: subprocess.Popen[bytes] | None


def die_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Make the function that, run in a new child, has the kernel send it `number` when we die.

    The kernel forgets this when a process changes its user, so it must run after that: as `preexec_fn` does.
    """
    parent = os.getpid()

    def ask_the_kernel() -> None:
        if _LIBC is not None:
            _LIBC.prctl(PR_SET_PDEATHSIG, int(number))
            if os.getppid() != parent:  # it died before we asked
                os._exit(1)

    return ask_the_kernel


def spawn(
    command: Sequence[str | Path],
    *,
    folder: Path,
    log: Path,
    env: Mapping[str, str] | None = None,
    number: signal.Signals = signal.SIGTERM,
    user: pwd.struct_passwd | None = None,
    output: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, its output appended to `log`; the kernel sends it `number` if we die."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file if output is None else output,
            stderr=file,
            start_new_session=True,  # the terminal's Ctrl-C is ours to pass on, in our order
            preexec_fn=die_with_parent(number),  # noqa: PLW1509 - only system calls, and no thread of ours holds a lock
            user=user.pw_uid if user else None,
            group=user.pw_gid if user else None,
            extra_groups=[] if user else None,
        )


def fingerprint(pid: int) -> str | None:
    """Tell a process from any later one with its pid; None when it is gone, or dead and not yet reaped."""
    if not PROC.joinpath("self/stat").exists():
        return _fingerprint_by_ps(pid)
    fields = _stat(pid)
    if fields is None or fields[0] in {"Z", "X"}:
        return None
    boot = PROC.joinpath("sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}/{fields[19]}"


def _stat(pid: int) -> list[str] | None:
    """Read /proc/<pid>/stat from the state on: the name before it may hold spaces and brackets."""
    try:
        return PROC.joinpath(str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _fingerprint_by_ps(pid: int) -> str | None:
    asked = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def session_members(session: int) -> list[int]:
    """List the living processes of a session, its leader among them."""
    members = []
    for pid in (int(entry.name) for entry in PROC.glob("[0-9]*")):
        fields = _stat(pid)
        if fields is not None and fields[0] not in {"Z", "X"} and int(fields[3]) == session:
            members.append(pid)
    return members


def carries(pid: int, name: str, value: str) -> bool:
    """Say whether a process was started with this name and value in its environment."""
    try:
        environ = PROC.joinpath(str(pid), "environ").read_bytes()
    except OSError:  # gone, or another user's
        return False
    return f"{name}={value}".encode() in environ.split(b"\0")


def end(pid: int, mark: str, *, number: signal.Signals, grace_seconds: float) -> None:
    """Signal one process that is not our child, wait until it is gone, and kill it if it will not go."""
    for attempt, seconds in ((number, grace_seconds), (signal.SIGKILL, 10.0)):
        if fingerprint(pid) != mark:
            return
        try:
            os.kill(pid, attempt)
        except ProcessLookupError:
            return
        wait_until(lambda: fingerprint(pid) != mark, seconds)


def stop(process: subprocess.Popen[bytes], *, number: signal.Signals, grace_seconds: float) -> int:
    """Signal our own child and wait for its end; return its exit code."""
    if not is_over(process):
        process.send_signal(number)
    return finish(process, grace_seconds=grace_seconds)


def finish(process: subprocess.Popen[bytes], *, grace_seconds: float) -> int:
    """Wait for a child that was told to stop, kill what is left of its session, and return its exit code."""
    wait_until(lambda: is_over(process), grace_seconds)
    sweep(process)
    return process.wait()


def is_over(process: subprocess.Popen[bytes]) -> bool:
    """Say whether our child has ended, without reaping it: its pid stays its own until `sweep`."""
    if process.returncode is not None:
        return True
    try:
        return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def sweep(process: subprocess.Popen[bytes]) -> None:
    """Kill whatever still runs in our child's group; before it is reaped, so that the group is surely ours."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # nobody left; macOS says EPERM for a group of zombies
            return


def wait_until(fact: Callable[[], bool], seconds: float) -> bool:
    """Wait for a fact about another process; return whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


def tail(log: Path, *, lines: int = 15) -> str:
    """Give the last lines of a log, for a message that says why."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 8000))
        return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
