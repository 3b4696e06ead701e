"""What a check is, how much of the ledger it walks, and how a breach of it is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows

NAMED: Final = 20
"""Rows named per check; the count tells how many there are."""

# Ids are made by the clocks of many machines, some time before their transaction commits, and a
# receipt's observations when it is kept: what is touched is looked for from this much earlier on.
OVERLAP: Final = timedelta(hours=1)

# A transaction's `now` is fetched before it waits for locks. Whoever got the lock later may carry
# the earlier time, by no more than the lock and statement time-outs together.
LOCK_WAIT: Final = timedelta(seconds=60)

# The ranks of `policy.states`, as positions in an array.
RANKED: Final = ["prepared", "submitted", "unknown", "failed", "delivered"]

# The two names that every check selects from: the intents and the events to be walked.
EVERYTHING: Final = "scope AS (SELECT id FROM intent), events AS (SELECT id FROM event)"
TOUCHED: Final = """
scope AS MATERIALIZED (
    SELECT id FROM intent WHERE closed_at IS NULL
    UNION SELECT id FROM intent WHERE id >= %(from_id)s
    UNION SELECT intent_id FROM transition WHERE id >= %(from_id)s
    UNION SELECT intent_id FROM observation WHERE id >= %(from_id)s),
events AS MATERIALIZED (
    SELECT id FROM event WHERE id >= %(from_id)s
    UNION SELECT i.event_id FROM scope s JOIN intent i ON i.id = s.id)
"""
RUN: Final = "WITH {scope}, found AS ({check}) SELECT f.*, count(*) OVER () AS breach_count FROM found f ORDER BY 1 LIMIT {named}"


@dataclass(frozen=True, slots=True)
class Check:
    """One question to the ledger: every row that its SQL finds is in breach."""

    invariant: int
    code: str
    words: str
    """What it means that a row is found."""
    sql: str


@dataclass(frozen=True, slots=True)
class Breach:
    """One check that found something: how many rows, and the first of them by their ids."""

    invariant: int
    code: str
    words: str
    count: int
    rows: Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Scope:
    """How much is walked: everything, or what was touched since an instant and all that is open."""

    now: datetime
    since: datetime | None
    params: Mapping[str, object] = field(default_factory=dict)

    @property
    def ctes(self) -> str:
        """Give the definitions of `scope` and `events`."""
        return EVERYTHING if self.since is None else TOUCHED

    @property
    def from_id(self) -> UUID:
        """Give the lowest id that may have been made since."""
        return UUID(int=0) if self.since is None else lowest_id(self.since - OVERLAP)


def lowest_id(at: datetime) -> UUID:
    """Give the lowest UUIDv7 of an instant: its first 48 bits are milliseconds."""
    return UUID(int=max(0, int(at.timestamp() * 1000)) << 80)


def run(session: Session, check: Check, scope: Scope, **params: object) -> Breach | None:
    """Ask one check; None when nothing is in breach."""
    found = rows(
        session,
        RUN.format(scope=scope.ctes, check=check.sql, named=NAMED),
        now=scope.now,
        from_id=scope.from_id,
        lock_wait=LOCK_WAIT,
        ranked=RANKED,
        **params,
    )
    if not found:
        return None
    named = [{name: str(value) for name, value in row._asdict().items() if name != "breach_count"} for row in found]
    return Breach(check.invariant, check.code, check.words, found[0].breach_count, named)
