"""The heartbeat: that beat's tasks reach a worker and do their work, not that a process is alive."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from app.ground.db import rows, transact

BEAT = """
INSERT INTO heartbeat (name, at) VALUES ('beat', %(now)s) ON CONFLICT (name) DO UPDATE
SET at = greatest(heartbeat.at, excluded.at)
"""
IS_SILENT = "SELECT coalesce((SELECT at FROM heartbeat WHERE name = 'beat') < %(before)s, true) AS silent"

SILENT_AFTER: Final = timedelta(seconds=10)


def beat() -> None:
    """Note that a periodic task ran."""
    transact(lambda tx: rows(tx.session, BEAT, now=tx.now))


def is_silent() -> bool:
    """Say whether no periodic task ran for a while."""
    return bool(transact(lambda tx: rows(tx.session, IS_SILENT, before=tx.now - SILENT_AFTER))[0].silent)
