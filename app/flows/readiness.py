"""Say which part of what a process needs is not ready: the database, its migrations, Redis."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from pathlib import Path

import redis
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError

import models
from app.ground.db import CommitUnknown, DatabaseAway, Tx, rows, transact
from app.limits import client

REVISION = "SELECT version_num FROM alembic_version"


class Part(StrEnum):
    """What can be unready."""

    DATABASE = "database"
    MIGRATIONS = "migrations"
    REDIS = "redis"


def find_unready() -> list[Part]:
    """Name the parts that are not ready; empty when all are."""
    return [*_unready_database(), *_unready_redis()]


def _unready_database() -> list[Part]:
    try:
        revision = transact(_revision)
    except (DatabaseAway, CommitUnknown):
        return [Part.DATABASE]
    except DBAPIError:  # it answers, and has no such table
        return [Part.MIGRATIONS]
    head, known = _revisions()
    # A revision that this code does not know is a newer release's: the one before must run on it.
    return [] if revision == head or (revision is not None and revision not in known) else [Part.MIGRATIONS]


def _revision(tx: Tx) -> str | None:
    return next((str(row.version_num) for row in rows(tx.session, REVISION)), None)


@cache
def _revisions() -> tuple[str | None, frozenset[str]]:
    script = ScriptDirectory(str(Path(models.__path__[0]) / "migrations"))
    return script.get_current_head(), frozenset(each.revision for each in script.walk_revisions())


def _unready_redis() -> list[Part]:
    try:
        client().ping()
    except redis.RedisError:
        return [Part.REDIS]
    return []
