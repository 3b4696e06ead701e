"""transact: run again when nothing can have been committed, and never when it may have been."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from psycopg.errors import UniqueViolation
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

from app.ground import db
from app.ground.db import RERUN_COUNT, CommitUnknown, DatabaseAway, Raced, Tx, rows, transact
from tests.making import together

TOUCH = "UPDATE heartbeat SET at = now() WHERE name = %(name)s"
ADD = "INSERT INTO heartbeat (name, at) VALUES (%(name)s, now())"


def names(engine: Engine) -> list[str]:
    with Session(engine) as session:
        return [row.name for row in rows(session, "SELECT name FROM heartbeat ORDER BY name")]


def kill(engine: Engine, pid: int) -> None:
    with Session(engine) as session:
        rows(session, "SELECT pg_terminate_backend(%(pid)s, 5000)", pid=pid)


def pid_of(tx: Tx) -> int:
    pid: int = rows(tx.session, "SELECT pg_backend_pid() AS pid")[0].pid
    return pid


def test_what_is_done_is_committed_and_given_back(fresh_database: Engine) -> None:
    assert transact(lambda tx: (rows(tx.session, ADD, name="a"), "done")[1]) == "done"
    assert names(fresh_database) == ["a"]


def test_what_raises_is_rolled_back_and_passes_through(fresh_database: Engine) -> None:
    def fail(tx: Tx) -> None:
        rows(tx.session, ADD, name="a")
        raise LookupError

    with pytest.raises(LookupError):
        transact(fail)

    assert names(fresh_database) == []


@pytest.mark.usefixtures("fresh_database")
def test_now_is_fetched_once_and_is_the_databases() -> None:
    before, now, after = transact(
        lambda tx: (
            rows(tx.session, "SELECT now() AS at")[0].at,
            tx.now,
            rows(tx.session, "SELECT clock_timestamp() AS at")[0].at,
        )
    )

    assert before <= now <= after


@pytest.mark.usefixtures("fresh_database")
def test_two_transactions_in_a_deadlock_are_both_done_in_the_end() -> None:
    transact(lambda tx: [rows(tx.session, ADD, name=name) for name in ("a", "b")])
    both_have_one = threading.Barrier(2)
    runs: list[str] = []

    def touch(first: str, second: str) -> None:
        def work(tx: Tx) -> None:
            runs.append(first)
            rows(tx.session, TOUCH, name=first)
            if len(runs) <= 2:
                both_have_one.wait(10)
            rows(tx.session, TOUCH, name=second)

        transact(work)

    threads = [threading.Thread(target=touch, args=order) for order in (("a", "b"), ("b", "a"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert not any(thread.is_alive() for thread in threads)
    assert len(runs) == 3


def test_a_lost_race_runs_again_from_its_reads(fresh_database: Engine) -> None:
    runs: list[int] = []

    def work(tx: Tx) -> int:
        runs.append(len(runs))
        rows(tx.session, ADD, name=f"run-{len(runs)}")
        if len(runs) < 3:
            raise Raced
        return len(runs)

    assert transact(work) == 3
    assert names(fresh_database) == ["run-3"]


@pytest.mark.usefixtures("world")
def test_a_race_that_is_never_won_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    monkeypatch.setattr(time, "sleep", lambda _: None)

    def work(_: Tx) -> None:
        runs.append(1)
        raise Raced

    with pytest.raises(Raced):
        transact(work)

    assert len(runs) == RERUN_COUNT


def test_a_breach_of_a_constraint_is_not_run_again(fresh_database: Engine) -> None:
    runs: list[int] = []

    def work(tx: Tx) -> None:
        runs.append(1)
        rows(tx.session, ADD, name="a")
        rows(tx.session, ADD, name="a")

    with pytest.raises(UniqueViolation):
        transact(work)

    assert (len(runs), names(fresh_database)) == (1, [])


def test_a_backend_that_goes_away_before_the_commit_wrote_nothing(fresh_database: Engine) -> None:
    runs: list[int] = []

    def work(tx: Tx) -> None:
        runs.append(1)
        rows(tx.session, ADD, name="a")
        kill(fresh_database, pid_of(tx))
        rows(tx.session, ADD, name="b")

    with pytest.raises(DatabaseAway):
        transact(work)

    assert (len(runs), names(fresh_database)) == (1, [])


def test_a_backend_that_goes_away_while_committing_leaves_us_not_knowing(fresh_database: Engine) -> None:
    """It may stand or not, so it is not run again."""
    runs: list[int] = []

    def work(tx: Tx) -> None:
        runs.append(1)
        rows(tx.session, ADD, name="a")
        kill(fresh_database, pid_of(tx))

    with pytest.raises(CommitUnknown):
        transact(work)

    assert len(runs) == 1


def test_a_commit_that_stands_although_we_did_not_hear_of_it_is_not_run_again(fresh_database: Engine) -> None:
    runs: list[int] = []

    def commit_and_break(connection: Any) -> None:
        connection.connection.driver_connection.commit()
        connection.connection.driver_connection.close()

    def work(tx: Tx) -> None:
        runs.append(1)
        rows(tx.session, ADD, name="a")

    event.listen(db.engine(), "commit", commit_and_break)
    try:
        with pytest.raises(CommitUnknown):
            transact(work)
    finally:
        event.remove(db.engine(), "commit", commit_and_break)

    assert (len(runs), names(fresh_database)) == (1, ["a"])


def test_after_a_broken_connection_the_next_transaction_has_another(fresh_database: Engine) -> None:
    with pytest.raises(CommitUnknown):
        transact(lambda tx: kill(fresh_database, pid_of(tx)))

    assert transact(lambda tx: rows(tx.session, "SELECT 1 AS one")[0].one) == 1


def test_what_is_still_held_of_a_pool_that_was_forgotten_is_closed_when_it_comes_back(fresh_database: Engine) -> None:
    def work(tx: Tx) -> Any:
        ours = tx.session.connection().connection.driver_connection
        (pid,) = together(lambda: transact(pid_of))
        kill(fresh_database, pid)
        together(lambda: transact(pid_of))  # it finds its connection dead, and forgets the whole pool
        assert ours is not None
        assert not ours.closed
        return ours

    db.engine().dispose()  # of other tests' connections: one of them, alive, could be taken instead of the dead one

    assert transact(work).closed
