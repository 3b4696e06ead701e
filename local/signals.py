"""Signals as facts to wait for: a child's death wakes the supervisor, a stop ends its wait."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """Somebody asked this process to stop."""


class Signals:
    """What has been signalled to this process since it began to listen."""

    def __init__(self) -> None:
        self._asked_to_stop = False
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen, and put everything back afterwards."""
        before = {number: signal.signal(number, self._note) for number in (*STOPS, signal.SIGCHLD)}
        wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._reading)
            os.close(self._writing)

    def wait(self, seconds: float) -> None:
        """Wait so long, or until a signal comes; raise Stopped once one meant stop."""
        if not self._asked_to_stop and select.select([self._reading], [], [], seconds)[0]:
            os.read(self._reading, 4096)
        if self._asked_to_stop:
            raise Stopped

    def _note(self, number: int, _: FrameType | None) -> None:
        self._asked_to_stop |= number in STOPS
