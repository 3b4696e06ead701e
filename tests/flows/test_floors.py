"""Low-water marks: a sweep starts at the oldest row that waits, and what was committed late below is found after all."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.flows.floors import lower_floors, raise_sweep_floors
from app.flows.reconcile.deadlines import put_in_doubt
from app.ground.db import rows
from policy.states import AttemptState
from tests.making import clock, committing, make_attempt, make_house

MINUTE = timedelta(minutes=1)


def test_a_mark_stands_at_the_oldest_row_that_waits_and_passes_nothing_over(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        prepared = make_attempt(session, make_house(session, now=now - 10 * MINUTE), AttemptState.PREPARED, now=now - 10 * MINUTE)
        due = rows(session, "SELECT next_check_at FROM attempt WHERE id = %(id)s", id=prepared.attempt_id)[0].next_check_at

    raise_sweep_floors()

    with Session(fresh_database) as session:
        assert marks(session)["checks"] == due
    assert put_in_doubt() == 1


def test_a_mark_stays_behind_the_clock_and_what_commits_late_below_it_is_found_after_all(fresh_database: Engine) -> None:
    raise_sweep_floors()
    with Session(fresh_database) as session:
        now = clock(session)
        assert now - 2 * MINUTE < marks(session)["checks"] <= now - MINUTE
    with committing(fresh_database) as session:  # took its `now` ten minutes ago
        make_attempt(session, make_house(session, now=now - 10 * MINUTE), AttemptState.PREPARED, now=now - 10 * MINUTE)

    below = put_in_doubt()
    lower_floors()

    assert (below, put_in_doubt()) == (0, 1)


def marks(session: Session) -> dict[str, datetime]:
    """Read where the sweeps start."""
    return {row.name: row.floor_at for row in rows(session, "SELECT name, floor_at FROM sweep_floor")}
