"""`daybook review`: counted first, settled with the count, and the books know by whom."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine

from app.ground.db import rows, transact
from app.ledger.books import lock_books
from app.ledger.review import park
from policy.words import Reason
from tests.cli.conftest import Run
from tests.making import BEN, House, clock, committing, make_house, make_queued


@pytest.fixture
def house(fresh_database: Engine) -> House:
    """Give a tenant with two parked rows."""
    with committing(fresh_database) as session:
        now = clock(session)
        made = make_house(session, now=now)
        for changes in ({"stake": {"count": 2, "unit": "seat"}}, {"ref": "m-2", "sms": BEN}):
            standing = make_queued(session, made, now=now, **changes)
            park(session, lock_books(session, [standing.intent_id]), {standing.attempt_id: Reason.LOST_LEASES}, now=now)
        return made


def acts() -> list[tuple[str, str]]:
    found = transact(lambda tx: rows(tx.session, "SELECT actor, subject ->> 'as' AS settlement FROM operator_action"))
    return [(row.actor.partition(":")[0], row.settlement) for row in found]


def test_a_group_is_counted_first_and_settled_with_that_count(daybook: Run, house: House) -> None:
    mine = ("--tenant", house.tenant)
    settle = ("review", "settle", *mine, "--cause", "lost_leases", "--as", "resend", "--reason", "more memory")

    listed, counted = daybook("review", "list", *mine), daybook(*settle)
    wrong, before = daybook(*settle, "--count", "3"), acts()
    right, after = daybook(*settle, "--count", "2"), daybook("review", "list", *mine)

    assert (listed.exit_code, "lost_leases" in listed.output, "2 seat" in listed.output) == (1, True, True)
    assert (counted.exit_code, "with --count 2" in counted.output) == (1, True)
    assert (wrong.exit_code, "2 are open in this group now, not 3" in wrong.output, before) == (1, True, [])
    assert (right.exit_code, right.output) == (0, "settled as resend: 2\n")
    assert (after.exit_code, after.output) == (0, "nothing is asked\n")
    assert acts() == [("cli", "resend")] * 2


def test_one_is_shown_and_settled_and_says_who_was_first(daybook: Run, house: House) -> None:
    mine = ("--tenant", house.tenant)
    each = json.loads(daybook("review", "list", *mine, "--each", "--json").output)
    first = each[0]["id"]
    settle = ("review", "settle", first, *mine, "--reason", "no use any more", "--as")

    shown, refused = daybook("review", "show", first, *mine), daybook(*settle, "leave")
    settled, again = daybook(*settle, "failed"), daybook(*settle, "resend")

    assert [q["answers"] for q in each] == [["failed", "resend"]] * 2
    assert "failed, resend" in shown.output
    assert (refused.exit_code, "the row is parked" in refused.output) == (1, True)
    assert (settled.exit_code, again.exit_code) == (0, 1)
    assert "nothing is changed: settled as failed by cli:" in again.output
    assert "no use any more" in daybook("review", "show", first, *mine).output
    assert acts() == [("cli", "failed")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--as", "resend", "--reason", "x"), "name one question by its id, or a group"),
        (("--cause", "lost_leases", "--as", "resend", "--reason", "call +12015550123"), "must not hold an address"),
        (("01a22e79-1613-735c-8d25-7b50cc0ae879", "--as", "failed", "--reason", "x"), "no such review"),
    ],
)
def test_a_mistake_is_told_and_changes_nothing(daybook: Run, house: House, arguments: tuple[str, ...], said: str) -> None:
    told = daybook("review", "settle", "--tenant", house.tenant, *arguments)

    assert (told.exit_code, said in told.output, acts()) == (2, True, [])
