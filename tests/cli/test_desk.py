"""`daybook key`, `pause` and `resume`: they say what they did, and the books know who did it."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine

from app.desk.configure import add_tenant
from app.ground.db import rows, transact
from app.ground.keys import read_api_key
from policy.states import AttemptState
from tests.cli.conftest import Run
from tests.making import BEN, House, committing, make_attempt, make_house, make_queued


@pytest.fixture
def house(fresh_database: Engine) -> House:
    """Give a tenant with something due."""
    with committing(fresh_database) as session:
        made = make_house(session)
        make_queued(session, made)
        return made


def actions() -> list[tuple[str, str]]:
    found = transact(lambda tx: rows(tx.session, "SELECT verb, reason FROM operator_action ORDER BY at"))
    return [(row.verb, row.reason) for row in found]


def test_a_key_is_shown_once_listed_without_itself_and_revoked_for_good(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        add_tenant(session, name="demo", now=transact(lambda tx: tx.now))
    made = json.loads(daybook("key", "add", "--name", "till", "--scope", "events:write", "--json").output)
    read = read_api_key(made["key"])
    assert read is not None
    key_id = read[0]

    listed = daybook("key", "list")
    revoked, again = daybook("key", "revoke", key_id), daybook("key", "revoke", key_id)

    assert str(key_id) in listed.output
    assert made["key"] not in listed.output
    assert (revoked.exit_code, again.exit_code) == (0, 1)
    assert json.loads(daybook("key", "list", "--json").output)[0]["revoked_at"] is not None
    assert [verb for verb, _ in actions()] == ["add_key", "revoke_key"]


def test_a_pause_says_what_it_holds_and_resume_what_is_still_held(daybook: Run, house: House) -> None:
    everything, lane = ("--tenant", house.tenant, "--reason", "storm"), ("--lane", "urgent")

    first, second = daybook("pause", *everything), daybook("pause", *everything, *lane)
    let_go = daybook("resume", *everything)

    assert (first.exit_code, second.exit_code, let_go.exit_code) == (0, 0, 0)
    assert f"paused everything of tenant {house.tenant}" in first.output
    assert "pauses ended: 1" in let_go.output
    assert "lane urgent" in let_go.output
    assert actions() == [("pause", "storm"), ("pause", "storm"), ("resume", "storm")]


def test_a_scope_that_is_not_paused_is_told(daybook: Run, house: House) -> None:
    told = daybook("resume", "--tenant", house.tenant, "--category", "marketing", "--reason", "done")

    assert told.exit_code == 1
    assert "no pause of exactly this scope" in told.output
    assert "nothing of this tenant is held" in told.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "--tenant", "nobody", "--reason", "x"), "no tenant named 'nobody'"),
        (("pause",), "Missing option '--reason'"),
        (("pause", "--lane", "fast", "--reason", "x"), "Invalid value for '--lane'"),
        (("key", "add", "--name", "x", "--scope", "all"), "Invalid value for '--scope'"),
    ],
)
@pytest.mark.usefixtures("fresh_database")
def test_a_mistake_is_told_with_its_own_exit_code(daybook: Run, arguments: tuple[str, ...], said: str) -> None:
    told = daybook(*arguments)

    assert told.exit_code == 2
    assert said in told.output


def test_an_unknown_route_is_told(daybook: Run, house: House) -> None:
    told = daybook("pause", "--tenant", house.tenant, "--route", "nowhere", "--reason", "x")

    assert told.exit_code == 2
    assert "no route named 'nowhere'" in told.output


def test_an_occasion_that_is_called_off_says_who_had_been_told(daybook: Run, house: House, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        make_attempt(session, house, AttemptState.SUBMITTED, ref="m-2", sms=BEN, remote_id="SM1")
        make_queued(session, house, ref="m-3", sms="+12015550125")
    occasion = ("--tenant", house.tenant, "--type", "class.opening", "--subject", "c-1", "--except", "m-3")

    told = daybook("cancel", *occasion, "--reason", "seat filled", "--key", "seat-1")
    again = daybook("cancel", *occasion, "--reason", "seat filled", "--key", "seat-1")

    assert (told.exit_code, told.output) == (0, again.output)
    assert "1 cancelled, 1 handed off, 0 joined, 0 closed, 1 excepted" in told.output
    assert "m-2" in told.output
    assert actions() == [("cancel", "seat filled")]
