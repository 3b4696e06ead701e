"""`daybook policy test`: decide the cases of fixtures that are pinned to a version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from app.desk.configure import get_tenant
from app.desk.policy.compare import find_document
from app.desk.policy.source import Mistaken, NoText, read_file, read_text, read_yaml
from app.ground.db import transact
from cli.environment import Trouble, as_text, books
from cli.policy_options import FILE, JSON, TENANT
from policy.document import Document
from policy.fixtures import Fixture, InvalidFixture, read_fixture, try_case

SUFFIXES: Final = (".yaml", ".yml", ".jsonl")


@dataclass(slots=True)
class _Outcome:
    """What became of one file."""

    file: Path
    tried: int = 0
    problems: list[str] = field(default_factory=list)
    """Why the cases could not be tried."""
    failures: list[dict[str, Any]] = field(default_factory=list)


@click.command()
@click.argument("places", metavar="DIR|FILE...", type=FILE, nargs=-1, required=True)
@TENANT
@JSON
@click.pass_context
def test(context: click.Context, *, places: Sequence[Path], tenant: str, as_json: bool) -> None:
    """Decide what fixtures describe, and show where the decision is another one. Exits with 1 when there is one.

    A fixture names the version it is pinned to: a file beside it, or a published label of --tenant; and
    that version's sha256, so that nobody changes a document without looking at what it decides.
    """
    files = [file for place in places for file in _files_of(place)]
    if not files:
        raise Trouble(f"no fixtures ({', '.join(SUFFIXES)}) in {', '.join(map(str, places))}")
    outcomes = [_try(file, tenant) for file in files]
    if as_json:
        click.echo(as_text([_plain(outcome) for outcome in outcomes]))
    else:
        click.echo("\n".join(line for outcome in outcomes for line in _lines(outcome)))
    context.exit(1 if any(outcome.problems or outcome.failures for outcome in outcomes) else 0)


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    return [place]


def _try(file: Path, tenant: str) -> _Outcome:
    outcome = _Outcome(file)
    try:
        fixture = _read(file)
        document = _document(file, fixture, tenant)
    except InvalidFixture as error:
        outcome.problems += map(str, error.problems)
    except Mistaken as error:
        outcome.problems += map(str, error.mistakes)
    except NoText as error:
        raise Trouble(str(error)) from error
    else:
        if document.sha256 != fixture.sha256:
            outcome.problems.append(
                f"is pinned to {fixture.sha256[:12]}…, and {document.label} is {document.sha256}: "
                "see what it decides now, then pin it again"
            )
        for case in fixture.cases:
            outcome.tried += 1
            failure = try_case(document, case)
            if failure is not None:
                outcome.failures.append({"name": case.name, "difference": failure.lines()})
    return outcome


def _read(file: Path) -> Fixture:
    text = read_text(file)
    if file.suffix == ".jsonl":
        return read_fixture(_of_lines(text))
    value, _, mistakes = read_yaml(text)
    if mistakes:
        raise Mistaken(mistakes)
    return read_fixture(value)


def _of_lines(text: str) -> object:
    """Read a fixture line by line: the first line says what is pinned, each other is a case."""
    try:
        head, *cases = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (json.JSONDecodeError, ValueError) as error:
        raise Trouble(f"is no JSONL: {error}") from error
    return {**head, "cases": cases} if isinstance(head, dict) else head


def _document(file: Path, fixture: Fixture, tenant: str) -> Document:
    beside = file.parent / fixture.policy
    if beside.suffix in SUFFIXES or beside.exists():
        return read_file(beside).document
    with books():
        return transact(lambda tx: find_document(tx.session, tenant_id=get_tenant(tx.session, name=tenant), label=fixture.policy))


def _plain(outcome: _Outcome) -> dict[str, Any]:
    return {"file": str(outcome.file), "tried": outcome.tried, "problems": outcome.problems, "failures": outcome.failures}


def _lines(outcome: _Outcome) -> Iterator[str]:
    for problem in outcome.problems:
        yield f"{outcome.file}: {problem}"
    for failure in outcome.failures:
        yield f"{outcome.file}: {failure['name']}"
        yield from (f"    {line}" for line in failure["difference"])
    yield f"{outcome.file}: {outcome.tried - len(outcome.failures)} of {outcome.tried} as expected"
