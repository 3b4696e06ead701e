"""`daybook suppression`: lists come in line by line, once, however busy the books are; and who is on one can be told why."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import add_tenant
from app.ground.db import engine, rows, transact
from app.people.contacts import address_hash, read_number
from app.people.recipients import NewRecipient, put_recipient
from app.people.suppress import suppress
from tests.awaiting import eventually
from tests.cli.conftest import Run
from tests.cli.imported import count, mistakes, told
from tests.making import ANNA, BEN, beside, committing, count_of

HEADER: Final = "sms,category,act,source,at,reason"
STRANGER: Final = "+12015550199"
AT: Final = "2019-01-15T12:00:00Z"
LATER: Final = "2019-02-15T12:00:00Z"
AREAS: Final = (201, 202, 203, 205, 206)
MANY: Final = 10_000
SOME: Final = 2_000
WRITERS: Final = 10
TOGETHER: Final = 20
Write = Callable[..., Path]


def number(n: int) -> str:
    return f"+1{AREAS[n // 10_000]}555{n % 10_000:04}"


def line(n: int = 0, *, sms: str | None = None, act: str = "suppress", at: str = AT, source: str = "keyword") -> str:
    return f"{number(n) if sms is None else sms},,{act},{source},{at},old provider"


@pytest.fixture
def tenant_id(fresh_database: Engine) -> UUID:
    """Give a tenant that is there."""
    with committing(fresh_database) as session:
        return add_tenant(session, name="demo", now=transact(lambda tx: tx.now))


@pytest.fixture
def write(tmp_path: Path, tenant_id: UUID) -> Write:
    """Write a file for the tenant."""
    del tenant_id

    def file(*lines: str, name: str = "list.csv", header: str = HEADER) -> Path:
        path = tmp_path / name
        path.write_text("\n".join([header, *lines] if header else lines) + "\n")
        return path

    return file


def listed(daybook: Run, *whom: str) -> list[dict[str, Any]]:
    acts: list[dict[str, Any]] = json.loads(daybook("suppression", "list", *whom, "--json").stdout)
    return acts


def test_good_lines_are_kept_and_bad_ones_named_by_line_and_column(daybook: Run, write: Write, fresh_database: Engine) -> None:
    file = write(
        line(1),
        line(sms="+1201555"),
        "",
        line(2, act="ban", source="rumour", at="yesterday"),
        line(sms=""),
        line(3, at="2226-01-15T12:00:00Z"),
        line(4, act="lift"),
        line(5).replace("old provider", "anna@example.com"),
        line(6) + ",too many",
        line(7),
    )

    result = daybook("suppression", "import", file, "--json")

    assert result.exit_code == 1
    assert (told(result)["new"], count(fresh_database, "suppression")) == (2, 2)
    assert mistakes(result) == [
        (3, "sms", "invalid_number"),
        (5, "act", "invalid_field"),
        (5, "source", "invalid_field"),
        (5, "at", "invalid_field"),
        (6, "sms", "invalid_field"),
        (7, "at", "invalid_field"),
        (8, "act", "invalid_field"),
        (9, "reason", "personal_value"),
        (10, "", "invalid_field"),
    ]


def test_a_mistake_is_told_in_words_without_its_value(daybook: Run, write: Write) -> None:
    result = daybook("suppression", "import", write(line(1), line(2, act="lift"), line(sms="+12015550199999")))

    assert "line 3: act nothing stands that this source said before" in result.stderr
    assert "line 4: sms looks like a telephone number but is not valid" in result.stderr
    assert "0199999" not in result.output
    assert "suppressions: 1 new, 0 known before, 2 lines refused" in result.stdout


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        ({"sms": ANNA, "source": "keyword", "at": AT, "everything": "yes"}, "everything"),
        ({"sms": ANNA, "source": "keyword", "at": AT, "everything": True, "category": "marketing"}, "everything"),
        ({"sms": ANNA, "source": "keyword", "at": AT, "everything": True, "act": "lift"}, "everything"),
        ({"sms": ANNA, "fingerprint": "x", "source": "keyword", "at": AT}, "fingerprint"),
        ({"fingerprint": "k:" + "0" * 64, "source": "keyword", "at": AT}, "fingerprint"),
        ({"ref": "m-9", "source": "keyword", "at": AT}, "sms"),
        ({"sms": ANNA, "source": "keyword"}, "at"),
        ({"sms": ANNA, "at": AT}, "source"),
        ({"sms": ANNA, "source": "keyword", "at": AT, "wanted": True}, "wanted"),
    ],
)
def test_lines_of_json_are_read_as_strictly(daybook: Run, write: Write, bad: dict[str, Any], column: str) -> None:
    result = daybook("suppression", "import", write(json.dumps(bad), name="l.jsonl", header=""), "--json")

    assert {named for _, named, _ in mistakes(result)} == {column}


@pytest.mark.parametrize("header", ["category,source,at", "sms,number", ANNA])
def test_a_file_that_names_nobody_is_not_begun(daybook: Run, write: Write, fresh_database: Engine, header: str) -> None:
    result = daybook("suppression", "import", write(line(1), header=header))

    assert result.exit_code == 2
    assert "each once and `ref` or `sms` or `fingerprint` among them" in result.stderr
    assert ANNA not in result.output
    assert count(fresh_database, "suppression") == 0


def test_a_file_that_comes_again_or_was_corrected_brings_only_what_was_missing(daybook: Run, write: Write) -> None:
    good = (line(1), line(1, act="lift", at=LATER), line(3))
    daybook("suppression", "import", write(*good, line(sms="+1201555")))

    result = daybook("suppression", "import", write(line(2), *good), "--json")

    assert (told(result)["new"], told(result)["known"], mistakes(result)) == (1, 3, [])


def test_an_import_goes_on_after_the_pages_that_were_kept(daybook: Run, write: Write, fresh_database: Engine) -> None:
    """As after a kill: what is there is known by what it says, page by page."""
    daybook("suppression", "import", write(*map(line, range(500))))

    result = daybook("suppression", "import", write(*map(line, range(700))), "--json")

    assert (told(result)["known"], told(result)["new"]) == (500, 200)
    assert count(fresh_database, "suppression") == count(fresh_database, "gate") == 700


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_what_stands_goes_out_and_comes_in_again_as_the_same(
    daybook: Run, write: Write, tmp_path: Path, tenant_id: UUID, form: str
) -> None:
    """Recipients with their address, strangers and the erased by a fingerprint: nobody on the list is left out."""
    with committing(engine()) as session:
        for ref, sms in (("m-1", ANNA), ("m-2", BEN)):
            put_recipient(session, NewRecipient(ref, read_number(sms)), tenant_id=tenant_id, actor="a", now=transact(_now))
    imported = [line(sms=ANNA), line(sms=BEN, source="legal"), line(sms=STRANGER), line(8), line(8, act="lift", at=LATER)]
    daybook("suppression", "import", write(*imported))
    daybook("suppression", "add", "m-1", "--reason", "asked", "--category", "marketing")
    with committing(engine()) as session:
        rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = now() WHERE name = 'm-2'")
    out = tmp_path / f"out.{form}"

    exported = daybook("suppression", "export", "--output", out)
    again = daybook("suppression", "import", out, "--json")
    with committing(engine()) as session:
        before = standing(session)
        rows(session, "SET LOCAL daybook.retention = 'on'")
        rows(session, "DELETE FROM suppression")
    elsewhere = daybook("suppression", "import", out, "--json")

    assert (exported.exit_code, "suppressions: 4 given out" in exported.stderr) == (0, True)
    assert (told(again)["new"], told(again)["known"], mistakes(again)) == (0, 4, [])
    assert (told(elsewhere)["new"], mistakes(elsewhere)) == (4, [])
    with committing(engine()) as session:
        assert standing(session) == before
    text = out.read_text()
    assert [sms in text for sms in (ANNA, BEN, STRANGER)] == [True, False, False]


def _now(tx: Any) -> Any:
    return tx.now


def standing(session: Session) -> list[Any]:
    """Read who is suppressed, by whom, how far and since when it was said."""
    return rows(
        session,
        """SELECT address_hash, channel, category, everything, source, coalesce(told_at, at) AS said_at FROM suppression s
           WHERE act = 'suppress' AND NOT EXISTS (SELECT FROM suppression l WHERE s.id = ANY(l.lifts)) ORDER BY 1, 2, 3, 4, 5""",
    )


def test_a_recipient_is_suppressed_listed_and_lifted(daybook: Run, write: Write, tenant_id: UUID) -> None:
    with committing(engine()) as session:
        put_recipient(session, NewRecipient("m-1", read_number(ANNA)), tenant_id=tenant_id, actor="a", now=transact(_now))
    daybook("suppression", "import", write(line(sms=ANNA)))

    added, repeated = (daybook("suppression", "add", "m-1", "--reason", "asked by telephone") for _ in range(2))
    order, old = listed(daybook, "m-1")
    lifted, again = (daybook("suppression", "lift", old["id"], "--reason", "list was wrong") for _ in range(2))
    words = daybook("suppression", "list", "m-1")

    assert (added.exit_code, repeated.exit_code) == (0, 0)
    assert "suppressed before, by the same source" in repeated.output
    assert (order["source"], old["source"], old["address"]) == ("operator", "keyword", "••••••••••23")
    assert (lifted.exit_code, again.exit_code) == (0, 1)
    assert [act["id"] for act in listed(daybook, "m-1", "--standing")] == [order["id"]]
    assert "One of our people noted that you do not want our messages. That was on " in words.output
    assert "The reason: asked by telephone." in words.output
    assert "You wrote to us that you do not want our messages. That was on 2019-01-15 12:00:00 UTC, and we were told so" in (
        words.output
    )
    assert "It was lifted on " in words.output
    assert ANNA.removeprefix("+1") not in words.output + added.output


def test_a_number_of_nobody_is_suppressed_as_well(daybook: Run, tenant_id: UUID) -> None:
    del tenant_id
    daybook("suppression", "add", "--sms", STRANGER, "--reason", "court order", "--source", "legal", "--everything")

    (act,) = listed(daybook, "--sms", STRANGER)

    assert (act["source"], act["everything"], act["address"], act["stands"]) == ("legal", True, None, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list",), "name a recipient's REF, or a number with --sms"),
        (("list", "m-1", "--sms", ANNA), "name a recipient's REF, or a number with --sms"),
        (("list", "m-9"), "no such recipient"),
        (("list", "--sms", "12"), "--sms"),
        (("add", "m-9", "--reason", "x"), "no address of this channel"),
        (("add", "--sms", ANNA, "--reason", "of a@example.com"), "reason must not hold an address"),
        (("add", "--sms", ANNA, "--reason", "x", "--everything", "--category", "marketing"), "covers every category"),
        (("add", "--sms", ANNA), "--reason"),
        (("lift", "0" * 32, "--reason", "x"), "no such suppression"),
        (("lift", "0" * 32, "--reason", "for +12015550123"), "must not hold an address"),
        (("lift", "--reason", "x"), "ID..."),
    ],
)
@pytest.mark.usefixtures("tenant_id")
def test_what_cannot_be_done_at_all_is_told(daybook: Run, arguments: tuple[str, ...], said: str) -> None:
    result = daybook("suppression", *arguments)

    assert result.exit_code == 2
    assert said in result.output


def test_an_import_and_ten_writers_of_stops_wait_for_nobody_in_a_circle(
    daybook: Run, write: Write, tenant_id: UUID, fresh_database: Engine
) -> None:
    """Each writer suppresses several people in one transaction, as a page of carriers' answers does; nobody is re-run."""
    shuffled = random.Random(7).sample(range(SOME), SOME)  # noqa: S311 - the same order each time
    deadlocks = deadlock_count(fresh_database)

    with beside(*[lambda seed=seed: stop_some(fresh_database, tenant_id, seed) for seed in range(WRITERS)]) as stops:
        result = daybook("suppression", "import", write(*map(line, shuffled)), "--json")

    stopped = {digest for stop in stops for digest in result_of(stop)}
    assert (told(result)["new"], mistakes(result)) == (SOME, [])
    assert deadlock_count(fresh_database) == deadlocks
    with Session(fresh_database) as session:
        heard = rows(session, "SELECT address_hash FROM suppression WHERE told_at IS NULL")
        assert {bytes(row.address_hash) for row in heard} == stopped
        assert count_of(session, "suppression") == SOME + len(stopped)


def stop_some(engine: Engine, tenant_id: UUID, seed: int) -> set[bytes]:
    """Suppress people by several carriers' answers at once, a few times, in the order of their gates."""
    chosen = random.Random(seed)  # noqa: S311 - the same people each time
    stopped: set[bytes] = set()
    for _ in range(5):
        people = sorted(address_hash("sms", number(n)).digest for n in chosen.sample(range(SOME), TOGETHER))
        with committing(engine) as session:  # not `transact`, which would begin again after a deadlock
            now = rows(session, "SELECT clock_timestamp() AS now")[0].now
            for digest in people:
                suppress(
                    session, tenant_id=tenant_id, channel="sms", address_hash=digest, source="keyword", cause_id=None, now=now
                )
        stopped |= set(people)
    return stopped


def result_of(stop: Future[set[bytes]]) -> set[bytes]:
    return stop.result()


def deadlock_count(used: Engine) -> int:
    """Ask Postgres how often it broke a circle, once every connection of ours is gone and has told of its own."""
    used.dispose()
    engine().dispose()
    mine = """SELECT count(*) AS n FROM pg_stat_activity
              WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""
    with Session(used) as session:
        eventually(lambda: rows(session, mine)[0].n, until=lambda n: n == 0, seconds=10)
        return int(rows(session, "SELECT deadlocks AS n FROM pg_stat_database WHERE datname = current_database()")[0].n)


@pytest.mark.chaos
def test_ten_thousand_lines_come_in_with_word_of_how_far_it_is(daybook: Run, write: Write, fresh_database: Engine) -> None:
    result = daybook("suppression", "import", write(*map(line, range(MANY))))

    assert result.exit_code == 0
    assert f"suppressions: {MANY} new, 0 known before, 0 lines refused" in result.stdout
    assert len(result.stderr.splitlines()) == MANY // 5000
    assert (count(fresh_database, "suppression"), count(fresh_database, "gate"), count(fresh_database, "contact")) == (
        MANY,
        MANY,
        0,
    )
