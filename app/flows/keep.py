"""Keep what was heard: offered again until the ledger has it; one report it refuses goes to review alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import orjson
from psycopg import DataError, IntegrityError
from psycopg.errors import ProgramLimitExceeded

from app.ground.db import CommitUnknown, DatabaseAway, Raced, Tx, transact
from app.ground.log import log
from app.ledger.books import lock_books_of
from app.ledger.observe import Observed, Told, observe
from app.ledger.review import open_reviews

T = TypeVar("T")

# What a report may hold that no column takes: a carrier's text without end, or one that is no text.
POISON: Final = (DataError, IntegrityError, ProgramLimitExceeded, UnicodeEncodeError, orjson.JSONEncodeError)

LONGEST_PAUSE_SECONDS: Final = 5.0


def keep_trying(work: Callable[[], T]) -> T:
    """Run a re-runnable piece of database work until the database answers."""
    pause = 0.05
    while True:
        try:
            return work()
        except (DatabaseAway, CommitUnknown, Raced) as error:
            log.warning("database_away", cause=type(error).__name__, pause_seconds=round(pause, 2))
            time.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def observe_until_kept(told: Sequence[Told]) -> list[Observed]:
    """Observe reports, each under its own id, however long the database is away."""
    if not told:
        return []
    try:
        observed = keep_trying(lambda: transact(lambda tx: observe(tx.session, told, now=tx.now)))
    except POISON as error:
        if len(told) > 1:  # one of them is poison: the others must not wait for it
            return [kept for t in told for kept in observe_until_kept([t])]
        log.error("observation_refused", attempt_id=str(told[0].attempt_id), cause=type(error).__name__)
        _review(told[0])
        return []
    for o in observed:
        log.info(
            "observed",
            attempt_id=str(o.told.attempt_id),
            observation_id=str(o.told.id),
            source=o.told.source,
            state=o.told.state,
            judgement=o.judgement,
        )
    return observed


def _review(told: Told) -> None:
    keep_trying(lambda: transact(lambda tx: _ask(tx, told)))


def _ask(tx: Tx, told: Told) -> None:
    books = lock_books_of(tx.session, [told.attempt_id])
    open_reviews(tx.session, books, {told.attempt_id: "observation_refused"}, now=tx.now)
