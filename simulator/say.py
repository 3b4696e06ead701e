"""The simulator's log: one JSON line per thing that happened, ids and words only, never a number or a body."""

from __future__ import annotations

import json
import logging

_log = logging.getLogger("simulator")


def say(event: str, **fields: str | float | None) -> None:
    """Log one thing."""
    if _log.isEnabledFor(logging.INFO):
        _log.info(json.dumps({"event": event, **fields}))
