"""One supervised process: started, counted when it dies, started again after a growing pause, stopped."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from local.processes import finish, is_over, sweep

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 30.0
# Alive for so long, a process is not the one that crashed at start any more.
SETTLED_SECONDS: Final = 20.0
# A worker may be inside a carrier call, which ends 15 s after it began.
GRACE_SECONDS: Final = 20.0


@dataclass(slots=True)
class Child:
    """A process that should be running, and how it has fared."""

    name: str
    launch: Callable[[], subprocess.Popen[bytes]]
    log: Path
    stop_signal: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    exit_code: int | None = None
    death_count: int = 0
    """Deaths in a row, none of which came after a long life."""
    started_at: float = 0.0
    due_at: float = 0.0

    @property
    def is_alive(self) -> bool:
        """Say whether the process runs now."""
        return self.process is not None and not is_over(self.process)

    def start(self) -> None:
        """Start the process."""
        self.process = self.launch()
        self.started_at = time.monotonic()

    def note_death(self) -> bool:
        """Take a death into account, once, with all that it left behind; return whether there was one."""
        if self.process is None or not is_over(self.process):
            return False
        sweep(self.process)
        self.exit_code = self.process.wait()
        self.process = None
        if time.monotonic() - self.started_at > SETTLED_SECONDS:
            self.death_count = 0
        self.note_failure()
        return True

    def note_failure(self) -> None:
        """Count one more life that was too short, and pause longer before the next."""
        self.death_count += 1
        pause = min(FIRST_PAUSE_SECONDS * 2 ** min(self.death_count - 1, 10), LONGEST_PAUSE_SECONDS)
        self.due_at = time.monotonic() + pause

    @property
    def is_due(self) -> bool:
        """Say whether the process is down and its pause over."""
        return self.process is None and time.monotonic() >= self.due_at

    def ask_to_stop(self) -> None:
        """Send the signal that means stop, without waiting."""
        if self.process is not None and not is_over(self.process):
            self.process.send_signal(self.stop_signal)

    def finish(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Wait for the process that was asked to stop; kill it when it will not go."""
        if self.process is not None:
            self.exit_code = finish(self.process, grace_seconds=grace_seconds)
            self.process = None
