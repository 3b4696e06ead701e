"""The database: the engine, set-based statements, and `transact`, which holds the only commit."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import orjson
import psycopg
from psycopg import ClientCursor, InterfaceError, OperationalError, errors
from psycopg import Error as PsycopgError
from psycopg.rows import namedtuple_row
from psycopg.types.array import ListDumper
from psycopg.types.json import set_json_dumps, set_json_loads
from sqlalchemy import Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from app.ground import failpoints
from app.ground.config import settings
from app.ground.errors import DaybookError
from app.ground.failpoints import FailpointHit
from models.base import Base

set_json_loads(orjson.loads)
set_json_dumps(orjson.dumps)


class _Lists(ListDumper):
    """Write a list of ids in one go: asked one by one, a dumper for each, they took longer than anything else of a statement."""

    def dump(self, obj: list[Any]) -> bytes | None:
        if obj and all(type(each) is UUID for each in obj):
            return f"{{{','.join(map(str, obj))}}}".encode()
        return super().dump(obj)  # type: ignore[return-value]  # it says Buffer


psycopg.adapters.register_dumper(list, _Lists)

T = TypeVar("T")
Rows = list[Any]
"""Named tuples, one attribute per selected column."""
Statement = tuple[str, Mapping[str, object]]
"""SQL as psycopg takes it (`%(name)s`), and its parameters."""

RERUN_COUNT: Final = 12
# A deadlock or serialization failure says for certain that nothing was committed.
RERUNNABLE: Final = (errors.DeadlockDetected, errors.SerializationFailure)
# It waited as long as it may: waiting again would hang the caller for minutes.
BUSY: Final = (errors.LockNotAvailable, errors.QueryCanceled)
# Everything that works is read by key, and a page costs much the same wherever it lies: with the default
# the planner would rather read small tables whole, and go on doing so while they grow.
BEGIN: Final = """
SELECT set_config('statement_timeout', %(statement)s, true) AS statement, set_config('lock_timeout', %(lock)s, true) AS lock,
       set_config('timezone', 'UTC', true) AS timezone, set_config('random_page_cost', '1.1', true) AS random_page_cost,
       clock_timestamp() AS now
"""


# Asked only where failpoints are on: a transaction that wrote nothing has no commit to lose.
WROTE: Final = "SELECT pg_current_xact_id_if_assigned() IS NOT NULL AS wrote"


class CommitUnknown(DaybookError):
    """The connection broke while committing: the transaction may stand or not, and is not re-run."""


class Raced(DaybookError):
    """Another transaction was first: run the whole of this one again, from its reads."""


class DatabaseAway(DaybookError):
    """The database cannot be reached or went away before the commit: nothing was written."""


class DatabaseBusy(DatabaseAway):
    """A lock or a statement took longer than it may: nothing was written."""


class _Stale(DatabaseAway):
    """A connection out of the pool was dead already: the server went away while it lay there."""


@dataclass(frozen=True, slots=True)
class Tx:
    """One open transaction: its session, and its `now`, which is Postgres's."""

    session: Session
    now: datetime
    boottime: float
    """CLOCK_BOOTTIME in seconds, read before `now` was fetched: so `now` is never older than it says."""


@cache
def _engine_of(pid: int) -> Engine:
    # One engine per process: a pool that crosses a fork hands one task another task's rows.
    del pid
    return create_engine(
        settings().database_url,
        pool_size=8,
        max_overflow=24,
        # Server-side prepared statements do not survive a transaction-mode PgBouncer.
        connect_args={"prepare_threshold": None, "connect_timeout": 5, "application_name": "daybook"},
    )


def engine() -> Engine:
    """Give this process's engine."""
    return _engine_of(os.getpid())


def forget_engine() -> None:
    """Drop engines inherited over a fork without closing their connections, which are the parent's."""
    # Keys are pids, so the parent's engine is never used here; psycopg closes no connection that
    # another process opened.
    _engine_of.cache_clear()


def transact(work: Callable[[Tx], T]) -> T:
    """Run `work` in one transaction and commit; run it again after a deadlock or a lost race.

    Raises CommitUnknown when the answer to the commit was lost, DatabaseAway when the database
    could not be reached before it, DatabaseBusy when it took too long; everything that `work`
    raises rolls back and passes through.
    """
    for run in range(1, RERUN_COUNT + 1):
        try:
            return _run_once(work)
        except Raced:
            if run == RERUN_COUNT:
                raise
        except _Stale:
            if run > 1:
                raise
        except (DBAPIError, PsycopgError) as error:
            if not isinstance(_cause(error), RERUNNABLE) or run == RERUN_COUNT:
                raise
        time.sleep(random.uniform(0, 0.005 * 2 ** min(run, 6)))  # noqa: S311 - spreads colliding transactions
    raise AssertionError("unreachable")


def _run_once(work: Callable[[Tx], T]) -> T:
    label = failpoints.label_of(work)
    with Session(engine(), expire_on_commit=False) as session:
        boottime = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            result = work(Tx(session, _begin(session), boottime))
            session.flush()
            label = label if label and rows(session, WROTE)[0].wrote else None
        except PoolTimeout as error:
            raise DatabaseAway("every connection of this process is in use") from error
        except (DBAPIError, PsycopgError) as error:
            if _connection_broke(error):
                session.invalidate()
                raise DatabaseAway(type(_cause(error)).__name__) from error
            if isinstance(_cause(error), BUSY):
                raise DatabaseBusy(type(_cause(error)).__name__) from error
            raise
        try:
            _pass(label, "before_commit")
            session.commit()
            _pass(label, "committed")
        except FailpointHit as error:
            session.invalidate()
            raise CommitUnknown(type(error).__name__) from error
        except (DBAPIError, PsycopgError) as error:
            if _connection_broke(error):
                session.invalidate()
                raise CommitUnknown(type(_cause(error)).__name__) from error
            raise  # Postgres answered: it did not commit
        return result


def _pass(label: str | None, place: str) -> None:
    if label is not None:
        failpoints.reach(f"{label}/{place}")


def _cause(error: Exception) -> BaseException | None:
    # Pipelined statements go past SQLAlchemy: their errors arrive as psycopg raised them.
    return error.orig if isinstance(error, DBAPIError) else error


def _connection_broke(error: Exception) -> bool:
    cause = _cause(error)
    if isinstance(
        cause, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | errors.IdleInTransactionSessionTimeout
    ):
        return True
    return isinstance(cause, OperationalError | InterfaceError) and getattr(cause, "sqlstate", None) is None


def _begin(session: Session) -> datetime:
    # The first statement is the ping: a query of its own before each transaction costs a round trip.
    try:
        return begin(session)
    except PsycopgError as error:  # SQLAlchemy's, when a new connection could not be made
        if not _connection_broke(error):
            raise
        session.invalidate()
        _forget_pool()  # its neighbours are as old
        raise _Stale(type(error).__name__) from error


def _forget_pool() -> None:
    """Close what the pool holds, and what threads still hold of it when that comes back: nobody would ask for it again."""
    pool = engine().pool
    engine().dispose()
    event.listen(pool, "checkin", _close)


def _close(_connection: object, record: ConnectionPoolEntry) -> None:
    record.invalidate()


def begin(session: Session) -> datetime:
    """Set this transaction's time-outs and fetch its `now`, in one round trip."""
    limits = settings()
    row = rows(session, BEGIN, statement=str(limits.statement_timeout_ms), lock=str(limits.lock_timeout_ms))[0]
    now: datetime = row.now
    return now


def rows(session: Session, statement: str, /, **params: object) -> Rows:
    """Run one statement, written for psycopg (`%(name)s`), and return its rows."""
    cursor = _driver(session).cursor(row_factory=namedtuple_row)
    cursor.execute(statement, params)
    return cursor.fetchall() if cursor.description else []


def run_together(session: Session, statements: Sequence[Statement]) -> list[Rows]:
    """Run several statements in one round trip; rows of each, empty for those that return none.

    They go as one query whose parameters psycopg has written in: a cursor and a protocol exchange for
    each would cost more than the statements. Each still sees what was committed before it began.
    """
    if not statements:
        return []
    connection = _driver(session)
    cursor = ClientCursor(connection, row_factory=namedtuple_row)
    query = ";".join([cursor.mogrify(statement, params) for statement, params in statements])
    cursor.execute(query.encode(connection.info.encoding))
    results = []
    while True:
        results.append(cursor.fetchall() if cursor.description else [])
        if not cursor.nextset():
            return results


def _driver(session: Session) -> Any:  # noqa: ANN401 - psycopg's connection, with cursors of any row
    # Past SQLAlchemy, which has the pool and the transaction: a statement of ours needs nothing else of it.
    return session.connection().connection.driver_connection


def insertion(model: type[Base], new: Sequence[Mapping[str, object]], *, tail: str = "") -> Statement:
    """Write one set-based INSERT for rows that all have the same columns; `tail` is ON CONFLICT, RETURNING.

    The caller sorts the rows by the table's unique key, so that overlapping pages cannot deadlock.
    """
    return _insert(cast("Table", model.__table__), tuple(new[0]), tail), {"new": as_json(new)}


@cache
def _insert(table: Table, columns: tuple[str, ...], tail: str) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy left it untyped
    names = ", ".join(columns)
    types = ", ".join(f"{c} {table.c[c].type.compile(dialect)}" for c in columns)
    return f"INSERT INTO {table.name} ({names}) SELECT {names} FROM json_to_recordset(%(new)s::json) AS n ({types}) {tail}"  # noqa: S608 - names from our own tables


def as_json(values: Sequence[object]) -> str:
    """Write rows (mappings or dataclasses) as one parameter, for `json_to_recordset(%(name)s::json) AS n (column type, ...)`.

    One document costs a tenth of what arrays of as many columns cost to write down, and a statement
    has the same parameter types whatever is null in it.
    """
    return orjson.dumps(values, default=_bytea).decode()


def as_page(values: Sequence[object]) -> dict[str, object]:
    """Give rows as the parameters of `(SELECT * FROM json_to_recordset(%(new)s::json) AS n (...) LIMIT %(count)s) n`.

    The limit cuts nothing off: it tells the planner, which takes every recordset for a hundred rows, how many
    there are. Else it reads the whole of a table that is smaller than a hundred look-ups, for three of its rows.
    """
    return {"new": as_json(values), "count": len(values)}


def _bytea(value: object) -> str:
    if isinstance(value, bytes | memoryview):
        return f"\\x{value.hex()}"
    raise TypeError(f"no column takes a {type(value).__name__}")
