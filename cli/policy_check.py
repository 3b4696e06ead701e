"""`daybook policy check`: every mistake of a document with its place, and what is wrong with those that are deployed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from app.desk.policy.deployed import Grade, Remark, look_at_deployed
from app.desk.policy.doubts import doubts_about
from app.desk.policy.source import Mistaken, NoText, Source, read_file
from app.ground.db import transact
from cli.environment import Trouble, as_text, books
from cli.policy_options import FILE, JSON
from policy.document import Document
from policy.findings import rfc3339

COLOURS: Final = {Grade.ERROR: "red", Grade.LAPSED: "red", Grade.WARNING: "yellow", Grade.NOTE: "cyan"}


@click.command()
@click.argument("files", type=FILE, nargs=-1)
@click.option("--deployed", is_flag=True, help="Look at what is published, not at files.")
@click.option("--strict", is_flag=True, help="With --deployed: exit with 1 also when a tenant has no version in force.")
@JSON
@click.pass_context
def check(context: click.Context, *, files: Sequence[Path], deployed: bool, strict: bool, as_json: bool) -> None:
    """Explain every mistake in policy documents, with its line and column. Exits with 1 when there is one.

    With --deployed it names, per tenant, the owner and version of what is about to start or lapse, who has
    none in force, and stored documents that this release cannot read; only the last ends with 1, so that a
    lapse does not keep a release back.
    """
    if deployed is bool(files):
        raise click.UsageError("name files, or --deployed")
    if strict and not deployed:
        raise click.UsageError("--strict goes with --deployed")
    context.exit(_deployed(strict=strict, as_json=as_json) if deployed else _files(files, as_json=as_json))


def _files(files: Sequence[Path], *, as_json: bool) -> int:
    # A file is looked at without a database, so that it can be in an editor or a build; this clock only
    # words a doubt, and decides nothing.
    now = datetime.now(UTC)  # noqa: TID251
    reports = [_report(file, now) for file in files]
    if as_json:
        click.echo(as_text(reports))
    else:
        click.echo("\n".join(line for report in reports for line in _lines(report)))
    return 1 if any(report["mistakes"] for report in reports) else 0


def _report(file: Path, now: datetime) -> dict[str, object]:
    try:
        source = read_file(file)
    except NoText as error:
        raise Trouble(str(error)) from error
    except Mistaken as error:
        mistakes = [
            {"path": m.path, "line": m.place.line, "column": m.place.column, "message": m.message} for m in error.mistakes
        ]
        return {"file": str(file), "mistakes": mistakes, "doubts": [], "summary": None}
    return {"file": str(file), "mistakes": [], "doubts": list(_doubts(source, now)), "summary": summary_of(source.document)}


def _doubts(source: Source, now: datetime) -> Iterator[dict[str, object]]:
    for doubt in doubts_about(source.document, now=now):
        place = source.place_of(doubt.path)
        yield {"path": doubt.path, "line": place.line, "column": place.column, "message": doubt.message}


def summary_of(document: Document) -> dict[str, object]:
    """Say in short what a document is."""
    return {
        "policy": document.label,
        "sha256": document.sha256,
        "owner": document.owner,
        "reviewer": document.reviewer,
        "status": document.status.value,
        "effective_from": rfc3339(document.effective_from),
        "effective_until": rfc3339(document.effective_until) if document.effective_until is not None else None,
        "categories": [category.value for category in document.categories],
    }


def _lines(report: dict[str, object]) -> Iterator[str]:
    for grade, key in ((Grade.ERROR, "mistakes"), (Grade.WARNING, "doubts")):
        found = report[key]
        assert isinstance(found, list)  # noqa: S101 - for the type checker
        for m in found:
            word = click.style(grade.value, fg=COLOURS[grade])
            yield f"{report['file']}:{m['line']}:{m['column']}: {word}: {m['path']}: {m['message']}"
    summary = report["summary"]
    if isinstance(summary, dict):
        yield f"{report['file']}: {in_words(summary)}"


def in_words(summary: dict[str, object]) -> str:
    """Write a summary as lines."""
    until = f"until {summary['effective_until']}" if summary["effective_until"] else "until another one starts"
    categories = summary["categories"]
    assert isinstance(categories, list)  # noqa: S101 - for the type checker
    return "\n".join(
        (
            f"{summary['policy']}",
            f"  owner       {summary['owner']}",
            f"  reviewer    {summary['reviewer'] or 'nobody'} ({summary['status']})",
            f"  in force    from {summary['effective_from']} {until}",
            f"  categories  {', '.join(categories)}",
            f"  sha256      {summary['sha256']}",
        )
    )


def _deployed(*, strict: bool, as_json: bool) -> int:
    with books():
        remarks = transact(lambda tx: look_at_deployed(tx.session, now=tx.now))
    if as_json:
        click.echo(as_text([asdict(remark) for remark in remarks]))
    else:
        click.echo("\n".join(map(_line, remarks)) or "policies: every tenant has one in force, and none starts or lapses soon")
    grave = {Grade.ERROR, Grade.LAPSED} if strict else {Grade.ERROR}
    return 1 if any(remark.grade in grave for remark in remarks) else 0


def _line(remark: Remark) -> str:
    word = click.style(
        remark.grade.value.upper() if remark.grade in {Grade.ERROR, Grade.LAPSED} else remark.grade.value,
        fg=COLOURS[remark.grade],
    )
    whose = " ".join(
        part
        for part in (
            f"tenant {remark.tenant}," if remark.tenant else "",
            remark.policy or "",
            f"(owner {remark.owner})" if remark.owner else "",
        )
        if part
    )
    return f"{word}: {whose}{': ' if whose else ''}{remark.words}"
