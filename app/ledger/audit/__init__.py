"""Audit the books: prove each invariant on a live ledger with SQL, and name the rows in breach."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from app.ground.db import begin, engine, rows
from app.ledger.audit import cancellations, explained, handoffs, history, keys, states, work
from app.ledger.audit.check import Breach, Check, Scope, run
from app.ledger.audit.consents import find_after_withdrawal
from app.ledger.audit.explained import find_rewritten, find_unfaithful
from app.ledger.audit.gates import find_contacted_too_soon
from app.ledger.audit.history import find_missing_guards
from app.ledger.audit.spent import find_miscounted
from app.ledger.audit.vault import find_damaged, find_personal

CHECKS: Final[tuple[Check, ...]] = (
    *keys.CHECKS,
    *handoffs.CHECKS,
    *states.CHECKS,
    *work.CHECKS,
    *explained.CHECKS,
    *history.CHECKS,
    *cancellations.CHECKS,
)

MARK: Final = "SELECT at FROM heartbeat WHERE name = 'audit'"
KEEP_MARK: Final = """
INSERT INTO heartbeat (name, at) VALUES ('audit', %(at)s) ON CONFLICT (name) DO UPDATE
SET at = greatest(heartbeat.at, excluded.at)
"""

# A full walk of a large ledger takes longer than any other statement may.
STATEMENT_FOR_MS: Final = 600_000
LONGER: Final = "SELECT set_config('statement_timeout', %(ms)s, true)"

__all__ = ["Breach", "audit", "find_mark", "keep_mark", "snapshot"]


def audit(session: Session, *, since: datetime | None, full: bool, now: datetime) -> list[Breach]:
    """Name what is in breach among what was touched since an instant and all that is open; with `full`, among everything.

    Nothing is written. To audit a system at work, give it the session of `snapshot`: its checks must see one state.
    """
    scope = Scope(now, None if full else since)
    found = [breach for check in CHECKS if (breach := run(session, check, scope)) is not None]
    apart = (
        find_rewritten(session),
        find_unfaithful(session, scope),
        find_after_withdrawal(session, scope),
        find_miscounted(session, scope),
    )
    found += [breach for breach in apart if breach is not None]
    found += find_contacted_too_soon(session, scope)
    found += find_damaged(session, full=full)
    found += find_personal(session, scope)
    found += find_missing_guards(session)
    return sorted(found, key=lambda breach: (breach.invariant, breach.code))


@contextmanager
def snapshot() -> Iterator[tuple[Session, datetime]]:
    """Open one read-only snapshot of the books, with its `now`; there is nothing to commit."""
    frozen = engine().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with Session(frozen) as session:
        now = begin(session)
        rows(session, LONGER, ms=str(STATEMENT_FOR_MS))
        yield session, now


def find_mark(session: Session) -> datetime | None:
    """Find up to when an audit has found the books clean."""
    found = rows(session, MARK)
    at: datetime | None = found[0].at if found else None
    return at


def keep_mark(session: Session, *, at: datetime) -> None:
    """Keep that an audit whose snapshot was taken at this moment found the books clean."""
    rows(session, KEEP_MARK, at=at)
