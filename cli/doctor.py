"""`daybook doctor`: say in words what is stuck, since when, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta

import click
from rich.table import Table
from rich.text import Text

from app.ground.db import transact
from app.ledger.doctor import Severity, Symptom, examine
from cli.environment import as_text, books, console

STYLES = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.NOTICE: "cyan"}


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Say what is not as it should be. Exits with 1 when there is something to say."""
    with books():
        symptoms = transact(lambda tx: examine(tx.session, now=tx.now))
    if as_json:
        said = [asdict(s) | {"age": s.age.total_seconds() if s.age is not None else None} for s in symptoms]
        click.echo(as_text({"healthy": not symptoms, "symptoms": said}))
    elif symptoms:
        _print(symptoms)
    else:
        click.echo("healthy: nothing is stuck, stopped or in doubt")
    context.exit(1 if symptoms else 0)


def _print(symptoms: Sequence[Symptom]) -> None:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("what, and what to do", overflow="fold", ratio=1)
    for symptom in symptoms:
        said = Text.assemble(symptom.words, ("\n→ " + symptom.what_to_do, "dim"))
        table.add_row(Text(symptom.severity, style=STYLES[symptom.severity]), in_words(symptom.age), said)
    console().print(table)


def in_words(age: timedelta | None) -> str:
    """Say how long, in its two largest units."""
    if age is None:
        return "-"
    minutes, seconds = divmod(int(age.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    if hours:
        return f"{hours}h {minutes}m"
    return f"{minutes}m {seconds}s" if minutes else f"{seconds}s"
