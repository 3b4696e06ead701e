"""One row among others that cannot go on: it is set aside and named, those beside it go on, and nothing goes out twice."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

BESIDE: Final = 20
"""How many fall due together with the bad one: three pages."""
LEASES: Final = 5
"""After so many a row is a question to a person."""

QUESTIONS: Final = "SELECT event_id::text, cause FROM review WHERE event_id = ANY(%s::uuid[])"
ANSWERED: Final = """
SELECT count(*) FROM attempt a JOIN observation o ON o.attempt_id = a.id AND o.source = 'answer'
WHERE a.event_id = ANY(%s::uuid[])
"""
LOST: Final = "SELECT lost_lease_count, due_at = 'infinity' FROM outbox WHERE event_id = ANY(%s::uuid[])"
ATTEMPTS: Final = "SELECT count(*) FROM attempt WHERE event_id = ANY(%s::uuid[])"

# Octets that do not compress: more of them than an index of Postgres's takes.
ENDLESS: Final = random.Random(1).randbytes(4000).hex()  # noqa: S311 - guards nothing


def behind_its_back(house: Crowd) -> psycopg.Connection[dict[str, Any]]:
    """Connect as only the owner of the books can: immutable rows may change, and may go."""
    connection = psycopg.connect(house.house.ready["database_url"].replace("+psycopg", ""), row_factory=dict_row)
    connection.execute("SET LOCAL daybook.retention = 'on'")
    return connection


def tamper(house: Crowd, body: str) -> None:
    """Change a published template."""
    with behind_its_back(house) as connection:
        changed = connection.execute(
            "UPDATE template_version SET bodies = jsonb_build_object('en', %s::text) WHERE name = 'tampered'", [body]
        )
        assert changed.rowcount


@contextmanager
def lost_template(house: Crowd, name: str) -> Iterator[None]:
    """Take a published template away, as a restore of the configuration does that is too old; bring it back at the end."""
    with behind_its_back(house) as connection:
        lost = connection.execute("DELETE FROM template_version WHERE name = %s RETURNING *", [name]).fetchall()
    assert lost
    try:
        yield
    finally:
        with behind_its_back(house) as connection:
            for row in lost:
                columns = ", ".join(row)
                values = [Jsonb(value) if isinstance(value, dict) else value for value in row.values()]
                marks = ", ".join(["%s"] * len(row))
                connection.execute(f"INSERT INTO template_version ({columns}) VALUES ({marks})", values)


def in_a_moment(house: Crowd) -> str:
    """Give an instant that leaves time to post a crowd."""
    now = house.house.sql("SELECT clock_timestamp()")[0][0]
    return str((now + timedelta(seconds=4)).isoformat())


def test_a_template_that_was_tampered_with_stops_its_own_event_only(house: Crowd) -> None:
    together = in_a_moment(house)
    poison = house.post(1, template="tampered", not_before=together)
    others = house.post(BESIDE, not_before=together)
    tamper(house, "A seat opened in {{ class }}, and you owe us.")

    assert house.ends([*poison, *others]) == {"delivered": BESIDE, "artifact_mismatch": 1}
    assert house.texts(poison) == {poison[0]: 0}
    assert set(house.texts(others).values()) == {1}
    doctor = house.house.daybook("doctor")
    assert doctor.returncode == 1
    assert "1 parked (artifact_mismatch)" in doctor.stdout


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"body": '{"sid": "SM\\u0000", "status": "queued"}'}, id="an id with a NUL"),
        pytest.param({"body": '{"sid": "SM\\ud800", "status": "queued"}'}, id="an id with half a surrogate pair"),
        pytest.param({"body": json.dumps({"sid": f"SM{ENDLESS}", "status": "queued"})}, id="an id that no index takes"),
        pytest.param({"status": 400, "body": '{"code": "\\u0000"}', "accept": False}, id="a code with a NUL"),
    ],
)
def test_an_answer_that_the_ledger_refuses_is_a_question_and_those_beside_it_are_kept(
    house: Crowd, answer: dict[str, Any]
) -> None:
    """What the carrier says crosses into Postgres: it may be what no column takes."""
    house.slow(low_ms=5, high_ms=5)
    together = in_a_moment(house)
    poison = house.post(1, not_before=together)
    others = house.post(BESIDE, not_before=together)
    # Whatever was heard later would answer the question before anybody has seen it.
    taken = {"receipts": "lost", "listed": False, "polled": False} if answer.get("accept", True) else {}
    house.house.rule(house.numbers[poison[0]], **answer, **taken)

    asked = eventually(lambda: house.asked(QUESTIONS, poison), seconds=40)

    assert asked == [(poison[0], "observation_refused")]
    house.assert_one_text_each(others)
    eventually(lambda: house.asked(ANSWERED, others), until=lambda rows: rows == [(BESIDE,)])
    assert house.asked(QUESTIONS, others) == []
    assert house.texts(poison)[poison[0]] == int(answer.get("accept", True))
    assert house.asked(ATTEMPTS, poison) == [(1,)]
    assert "observation_refused" in house.house.daybook("doctor").stdout


def test_a_row_that_takes_its_page_down_is_leased_alone_and_after_five_leases_parked(house: Crowd) -> None:
    """Nobody foresaw this fault: the whole task fails, and so do those of the rows beside it until it stands alone."""
    house.slow(low_ms=5, high_ms=5)
    together = in_a_moment(house)
    poison = house.post(1, template="lost", not_before=together)
    others = house.post(BESIDE, not_before=together)
    with lost_template(house, "lost"):
        assert house.ends(others) == {"delivered": BESIDE}
        before = house.asked(LOST, poison)
        assert house.ends(poison) == {"lost_leases": 1}

    assert [parked for _, parked in before] == [False], "the others did not wait for its end"
    assert house.asked(LOST, poison) == [(LEASES - 1, True)], "the count is of those before the last"
    assert Counter(house.texts([*others, *poison]).values()) == {1: BESIDE, 0: 1}
    assert "1 parked (lost_leases)" in house.house.daybook("doctor").stdout
