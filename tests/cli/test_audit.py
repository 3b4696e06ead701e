"""`daybook audit`, `doctor` and `inlet`: exit codes and words."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from app.flows.heartbeat import beat
from app.ground.db import transact
from app.ledger.audit import find_mark
from tests.cli.conftest import Run
from tests.conftest import World
from tests.ledger.lived import Lived, put_in_inlet


@pytest.mark.usefixtures("lived")
def test_clean_books_balance_and_the_mark_is_kept(daybook: Run) -> None:
    first, second = daybook("audit"), daybook("audit", "--full", "--json")

    assert (first.exit_code, second.exit_code) == (0, 0)
    assert "the books balance; walked: everything" in first.output
    assert "what was touched since" in daybook("audit").output
    assert json.loads(second.output)["clean"] is True
    assert transact(lambda tx: find_mark(tx.session)) is not None


def test_rows_in_breach_are_named_and_no_mark_is_kept(daybook: Run, lived: Lived, world: World) -> None:
    with world.engine.begin() as connection:
        connection.execute(text("SET LOCAL daybook.retention = 'on'"))
        connection.execute(text("DELETE FROM transition WHERE event_id = :id AND n = 2"), {"id": lived.events["delivered"]})

    said, read = daybook("audit"), daybook("audit", "--json")

    assert (said.exit_code, read.exit_code) == (1, 1)
    assert "gap_in_n" in said.output
    assert {b["code"] for b in json.loads(read.output)["breaches"]} >= {"gap_in_n", "applied_once", "out_of_order"}
    assert all(b["rows"] and b["count"] >= len(b["rows"]) for b in json.loads(read.output)["breaches"])
    assert transact(lambda tx: find_mark(tx.session)) is None


@pytest.mark.usefixtures("world", "fresh_database")
def test_the_doctor_is_silent_in_one_line_when_all_is_well(daybook: Run) -> None:
    beat()

    told = daybook("doctor")

    assert (told.exit_code, told.output) == (0, "healthy: nothing is stuck, stopped or in doubt\n")
    assert json.loads(daybook("doctor", "--json").output) == {"healthy": True, "symptoms": []}


@pytest.mark.usefixtures("lived")
def test_the_doctor_says_what_to_do(daybook: Run) -> None:
    told, read = daybook("doctor"), json.loads(daybook("doctor", "--json").output)

    assert told.exit_code == 1
    assert "see that beat" in " ".join(told.output.split())
    assert read["symptoms"][0]["code"] == "beat_silent"


@pytest.mark.usefixtures("lived")
def test_the_inlet_shows_what_was_refused_and_why(daybook: Run) -> None:
    put_in_inlet("nobody", {"recipient": {"sms": "+12015550134"}})

    told, read = daybook("inlet"), json.loads(daybook("inlet", "--json").output)

    assert told.exit_code == 1
    assert "invalid_number" in told.output
    assert [row["status"] for row in read] == ["waiting", "refused"]
    assert "5550134" not in told.output + json.dumps(read)


@pytest.mark.usefixtures("fresh_database")
def test_an_empty_inlet_says_so(daybook: Run) -> None:
    told = daybook("inlet")

    assert (told.exit_code, told.output) == (0, "nothing waits in the inlet, and nothing was refused\n")
