"""Bugs that would cost somebody a second text, each planted in a copy of the tree: the suite notices every one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.conftest import World
from tests.e2e.house import environment_of
from tests.planted.build import Bug, CodeMoved, Edit, copy_tree, failed_assertions, plant, run_tests

pytestmark = pytest.mark.chaos

BUGS: Final = (
    Bug(
        "a report is written whatever stands there by now",
        [
            Edit(
                "app/ledger/observe.py",
                "        judgement = judge(before.state, t.state)\n",
                "        judgement = Judgement.APPLIED\n",
            ),
        ],
        ["tests/ledger/test_observe.py::test_two_reports_that_race_are_joined_by_rank_and_not_by_arrival"],
    ),
    Bug(
        "observe without compare-and-set",
        [
            Edit("app/ledger/state.py", "WHERE a.id = n.id AND a.state = n.from_state\n", "WHERE a.id = n.id\n"),
            Edit(
                "app/ledger/books.py",
                "    return [(statement, ids) for statement in BY_ATTEMPT]\n",
                '    return [(statement.partition(" FOR ")[0], ids) for statement in BY_ATTEMPT]\n',
            ),
        ],
        ["tests/flows/test_reconcile.py::test_a_receipt_at_the_moment_of_the_horizon_is_not_overwritten"],
    ),
    Bug(
        "prepare after the carrier's call",
        [
            Edit(
                "app/flows/handoff.py",
                """        handoffs = _prepare(tokens.taken, lease=lease)
        tokens.settle(handoffs)
        for answered in send_side_by_side(handoffs, carrier_of, valid_until=tokens.valid_until):
            observe_until_kept(answered)  # an answer is a fact: offered again until the ledger has it
            tokens.unmark(answered)
""",
                """        answers: list[list[Told]] = []

        def call_and_prepare(tx):
            prepared = prepare(
                tx.session,
                tokens.taken,
                lease=lease,
                handoff_for=timedelta(seconds=settings().handoff_seconds),
                boottime=tx.boottime,
                now=tx.now,
            )
            answers.extend(send_side_by_side(prepared.handoffs, carrier_of))

        transact(call_and_prepare)
        for answered in answers:
            observe_until_kept(answered)
""",
            ),
        ],
        ["tests/flows/test_handoff.py::test_an_attempt_is_prepared_before_the_first_byte_leaves"],
    ),
    Bug(
        "the gate in Postgres is not asked",
        [
            Edit(
                "app/ledger/prepare.py",
                "            slot=None if is_reply else slot_of(slots, intent.category),\n",
                "            slot=None,\n",
            ),
        ],
        ["tests/ledger/test_prepare.py::test_a_gate_is_read_under_its_lock"],
    ),
    Bug(
        "not found is believed the first time",
        [Edit("app/ledger/heard.py", "ASKED_TWICE: Final = 2\n", "ASKED_TWICE: Final = 1\n")],
        ["tests/flows/test_reconcile.py::test_not_found_once_is_not_enough"],
    ),
)


@pytest.fixture(scope="module")
def environment(world: World) -> dict[str, str]:
    """Give the runs in the copies a database of their own on the servers of this run."""
    made = environment_of(world.engine.url, "planted", redis_db=14)
    return made | {"TEST_DATABASE_URL": made["DATABASE_URL"], "TEST_REDIS_URL": made["REDIS_URL"]}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return copy_tree(tmp_path / "tree")


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_noticed(tree: Path, environment: dict[str, str], bug: Bug) -> None:
    plant(tree, bug.edits)

    run = run_tests(tree, bug.tests, environment)

    assert failed_assertions(run.stdout, bug.tests), run.stdout[-4000:] + run.stderr[-2000:]
    assert run.returncode == pytest.ExitCode.TESTS_FAILED


def test_a_bug_whose_place_has_moved_is_named(tree: Path) -> None:
    with pytest.raises(CodeMoved, match=r"app/ledger/heard\.py holds this 0 times"):
        plant(tree, [Edit("app/ledger/heard.py", "ASKED_THRICE: Final = 3\n", "")])
