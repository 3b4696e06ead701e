"""What Python itself needs to live under libfaketime: loaded at the start of each process whose clock is off.

`time.sleep` waits for an absolute instant of the monotonic clock, which libfaketime 0.9.10 answers with
EINVAL even where it leaves that clock alone. A select without files waits as long, and is left alone.
"""

from __future__ import annotations

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex, /) -> None:
    select.select([], [], [], float(seconds))


time.sleep = _sleep
