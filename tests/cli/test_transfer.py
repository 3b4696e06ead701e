"""`daybook consent`, `preference` and `recipient`: files come in line by line, once, and go out as they came in."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import add_tenant
from app.desk.transfer.cells import read_cell, write_cell
from app.ground.db import rows, transact
from app.people.contacts import address_hash
from tests.awaiting import eventually
from tests.cli.conftest import Run
from tests.cli.imported import count, mistakes, told
from tests.conftest import ROOT
from tests.making import ANNA, BEN, committing

HEADER: Final = "ref,sms,category,act,kind,captured_at,source"
AT: Final = "2026-01-15T12:00:00Z"
AREAS: Final = (201, 202, 203, 205, 206)
MANY: Final = 50_000
SOME: Final = 6_000
Write = Callable[..., Path]


def line(n: int = 0, *, sms: str | None = None, source: str = "form", ref: str | None = None) -> str:
    number = sms or f"+1{AREAS[n // 10_000]}555{n % 10_000:04}"
    return f"{ref or f'm-{n}'},{number},marketing,grant,express,{AT},{source}"


@pytest.fixture
def write(tmp_path: Path, fresh_database: Engine) -> Iterator[Write]:
    """Write a file of a tenant that is there."""
    with committing(fresh_database) as session:
        add_tenant(session, name="demo", now=transact(lambda tx: tx.now))

    def file(*lines: str, name: str = "people.csv", header: str = HEADER, encoding: str = "utf-8", end: str = "\n") -> Path:
        path = tmp_path / name
        path.write_bytes((end.join([header, *lines] if header else lines) + end).encode(encoding, "surrogateescape"))
        return path

    return file  # type: ignore[return-value]  # a fixture's value, not its iterator


def test_good_lines_are_kept_and_bad_ones_named_by_line_and_column(daybook: Run, write: Write, fresh_database: Engine) -> None:
    file = write(
        line(1),
        line(2, sms="+1201555"),
        "",
        line(3).replace("express", "By mouth").replace(AT, "yesterday"),
        line(4).replace("grant", ""),
        line(5) + ",too many",
        line(6, ref=ANNA),
        line(7),
    )

    result = daybook("consent", "import", file, "--json")

    assert result.exit_code == 1
    assert (told(result)["new"], count(fresh_database, "consent")) == (2, 2)
    assert mistakes(result) == [
        (3, "sms", "invalid_number"),
        (5, "kind", "invalid_field"),
        (5, "captured_at", "invalid_field"),
        (6, "act", "invalid_field"),
        (7, "", "invalid_field"),
        (8, "ref", "personal_value"),
    ]
    assert ANNA not in result.output


def test_a_mistake_is_told_in_words_without_its_value(daybook: Run, write: Write) -> None:
    result = daybook("consent", "import", write(line(1, sms="+12015550199999"), line(2)))

    assert "line 2: sms looks like a telephone number but is not valid" in result.stderr
    assert "0199999" not in result.output
    assert "consents: 1 new, 0 known before, 1 lines refused" in result.stdout


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ('m-2,"+12025550123,marketing,grant,express,2026-01-15T12:00:00Z,form', [3]),  # swallows nothing behind it
        ('"m-2"x,+12025550123,marketing,grant,express,2026-01-15T12:00:00Z,form', [3]),
        (line(2, source='"two\nlines"'), [3, 4]),
        (line(2, source="f\0rm"), [3]),
        (line(2, source="f\x1brm"), [3]),
        (line(2, source="x" * 201), [3]),
        (line(2, source="x" * 70_000), [3]),
        (line(2, source="\udcff"), [3]),  # a byte that is no UTF-8
        (line(2, source="anna@example.com"), [3]),
    ],
)
def test_a_broken_line_costs_no_other_line_anything(
    daybook: Run, write: Write, fresh_database: Engine, bad: str, named: list[int]
) -> None:
    result = daybook("consent", "import", write(line(1), bad, line(3)), "--json")

    assert sorted({number for number, _, _ in mistakes(result)}) == named
    assert count(fresh_database, "consent") == 2


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_files_of_every_editor_are_read(daybook: Run, write: Write, encoding: str, end: str) -> None:
    file = write(line(1, source='"form ""A"", café"'), encoding=encoding, end=end)

    result = daybook("consent", "import", file)
    exported = daybook("consent", "export", "--format", "jsonl")

    assert result.exit_code == 0
    assert json.loads(exported.stdout)["source"] == 'form "A", café'


@pytest.mark.parametrize("header", ["ref,number", "sms,act", "ref,ref,sms", f"m-1,{ANNA}", '"ref'])
def test_a_file_without_its_header_is_not_begun(daybook: Run, write: Write, fresh_database: Engine, header: str) -> None:
    result = daybook("consent", "import", write(line(1), header=header))

    assert result.exit_code == 2
    assert "the first line must name columns" in result.stderr
    assert ANNA not in result.output
    assert count(fresh_database, "consent") == 0


@pytest.mark.parametrize(
    "bad",
    [
        "{",
        "[]",
        '{"ref": "m-2", "ref": "m-3"}',
        '{"ref": "m-2", "other": 1}',
        '{"ref": 1}',
        '{"ref": "m-2", "wanted": "yes"}',
        "NaN",
    ],
)
def test_lines_of_json_are_read_as_strictly(daybook: Run, write: Write, fresh_database: Engine, bad: str) -> None:
    good = [json.dumps({"ref": f"m-{n}", "sms": ANNA, "wanted": False, "at": AT, "category": None}) for n in (1, 3)]

    result = daybook("preference", "import", write(good[0], bad, good[1], name="p.jsonl", header=""), "--json")

    assert {number for number, _, _ in mistakes(result)} == {2}
    assert count(fresh_database, "preference") == 2


def test_a_number_as_it_is_dialled_at_home_is_the_same_person(daybook: Run, write: Write, fresh_database: Engine) -> None:
    numbers = ("+44 (0)161 496 0000", "0161 496 0000", "00441614960000")
    file = write(*[line(n, sms=number) for n, number in enumerate(numbers)])

    without, within = daybook("consent", "import", file, "--json"), daybook("consent", "import", file, "--region", "GB", "--json")

    assert {number for number, _, _ in mistakes(without)} == {3, 4}
    assert (told(within)["new"], told(within)["known"]) == (2, 1)
    with Session(fresh_database) as session:
        found = rows(session, "SELECT DISTINCT address_hash FROM consent")
    assert [bytes(row.address_hash) for row in found] == [address_hash("sms", "+441614960000").digest]


def test_a_file_that_was_corrected_brings_only_what_was_missing(daybook: Run, write: Write) -> None:
    """What was good the first time is known by what it says, not by where it stood."""
    daybook("consent", "import", write(line(1), line(2, sms="+1201555"), line(3)))

    result = daybook("consent", "import", write(line(3), line(2), line(1)), "--json")

    assert (told(result)["new"], told(result)["known"], mistakes(result)) == (1, 2, [])


def test_a_person_is_described_once_in_a_file(daybook: Run, write: Write, fresh_database: Engine) -> None:
    """Else importing it again would bring the first description back, and then the second."""
    file = write(f"m-1,{ANNA},Europe/Paris", f"m-2,{BEN},", "m-1,,", header="ref,sms,time_zone")

    first, again = (daybook("recipient", "import", file, "--json") for _ in range(2))

    assert (told(first)["new"], mistakes(first)) == (2, [(4, "ref", "invalid_field")])
    assert (told(again)["new"], told(again)["known"]) == (0, 2)
    assert count(fresh_database, "recipient") == 2


ROUND_TRIPS: Final = (
    ("consent", "ref,sms,channel,category,act,kind,captured_at,expires_at,wording,source",
     [f"m-1,{ANNA},sms,marketing,grant,implied_ebr,2026-01-15T12:00:00.123456Z,2036-01-15T12:00:00Z,=1+1,@form",
      f"m-2,{BEN},,,withdraw,,{AT},,'quoted,\"a, \"\"b\"\"\""]),
    ("preference", "ref,sms,channel,category,wanted,at", [f"m-1,{ANNA},sms,marketing,FALSE,{AT}", f"-m,{BEN},,,true,{AT}"]),
    ("recipient", "ref,sms,time_zone,locale", [f"m-1,{ANNA},Europe/Paris,fr-FR", "m-2,,,"]),
)  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize(("noun", "header", "lines"), ROUND_TRIPS, ids=[each[0] for each in ROUND_TRIPS])
def test_what_goes_out_comes_in_again_as_the_same(
    daybook: Run, write: Write, tmp_path: Path, noun: str, header: str, lines: list[str], form: str
) -> None:
    imported = daybook(noun, "import", write(*lines, header=header), "--json")
    out = tmp_path / f"out.{form}"

    exported = daybook(noun, "export", "--output", out)
    again = daybook(noun, "import", out, "--json")

    assert (told(imported)["new"], exported.exit_code) == (2, 0)
    assert (told(again)["new"], told(again)["known"], mistakes(again)) == (0, 2, [])


def test_no_cell_that_goes_out_is_a_formula(daybook: Run, write: Write) -> None:
    noun, header, lines = ROUND_TRIPS[0]
    daybook(noun, "import", write(*lines, header=header))

    cells = [cell for row in csv.reader(io.StringIO(daybook(noun, "export").stdout)) for cell in row]

    assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []
    assert {"'=1+1", "'@form", f"'{ANNA}", "'quoted"} <= set(cells)


@given(st.text(st.sampled_from("'=+-@\t a"), max_size=6))
def test_a_cell_is_read_as_it_was_written_and_never_calculates(value: str) -> None:
    cell = write_cell(value)

    assert read_cell(cell) == value
    assert not cell.lstrip(" ").startswith(("=", "+", "-", "@", "\t"))


def test_nothing_is_given_out_of_a_person_who_was_erased(daybook: Run, write: Write, fresh_database: Engine) -> None:
    daybook("consent", "import", write(line(1), line(2)))
    with committing(fresh_database) as session:
        rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = now() WHERE name = 'm-1'")

    exported = daybook("consent", "export", "--format", "jsonl")
    again = daybook("consent", "import", write(line(1), line(2)), "--json")

    assert [json.loads(each)["ref"] for each in exported.stdout.splitlines()] == ["m-2"]
    assert "1 left out of people who were erased" in exported.stderr
    assert mistakes(again) == [(2, "ref", "recipient_erased")]


def test_who_brought_in_and_gave_out_is_kept(daybook: Run, write: Write, fresh_database: Engine) -> None:
    daybook("recipient", "import", write(f"m-1,{ANNA}", header="ref,sms"))
    daybook("recipient", "export")

    with Session(fresh_database) as session:
        actions = rows(session, "SELECT verb, actor, subject FROM operator_action ORDER BY at")
    assert [action.verb for action in actions] == ["import_recipients", "export_recipients"]
    assert all(action.actor.startswith("cli:") for action in actions)
    assert len(actions[0].subject["sha256"]) == 64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("consent", "import", "nowhere.csv"), "does not exist"),
        (("consent", "import", __file__, "--region", "Europe"), "is no region with telephone numbers"),
        (("consent", "export", "--tenant", "nobody"), "no tenant named 'nobody'"),
    ],
)
@pytest.mark.usefixtures("fresh_database")
def test_what_cannot_be_done_at_all_is_told(daybook: Run, arguments: tuple[str, ...], said: str) -> None:
    told = daybook(*arguments)

    assert told.exit_code == 2
    assert said in told.output


@pytest.mark.processes
def test_an_import_that_is_killed_goes_on_where_it_was(daybook: Run, write: Write, fresh_database: Engine) -> None:
    file = write(*map(line, range(SOME)))
    with subprocess.Popen(
        [sys.executable, "-m", "cli", "consent", "import", file], cwd=ROOT, stderr=subprocess.DEVNULL
    ) as process:
        eventually(lambda: count(fresh_database, "consent"), until=lambda n: n > 0, seconds=30)
        process.kill()
    kept = count(fresh_database, "consent")

    result = daybook("consent", "import", file, "--json")

    assert 0 < kept < SOME
    assert kept % 500 == 0  # pages are kept whole
    assert (told(result)["known"], told(result)["new"]) == (kept, SOME - kept)
    assert count(fresh_database, "consent") == SOME


@pytest.mark.chaos
def test_fifty_thousand_lines_come_in_with_word_of_how_far_it_is(daybook: Run, write: Write, fresh_database: Engine) -> None:
    result = daybook("consent", "import", write(*map(line, range(MANY))))

    assert result.exit_code == 0
    assert f"consents: {MANY} new, 0 known before, 0 lines refused" in result.stdout
    assert len(result.stderr.splitlines()) == MANY // 5000
    assert (count(fresh_database, "consent"), count(fresh_database, "contact")) == (MANY, MANY)
