"""`daybook audit`: prove that the books balance, or name the rows that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

import click
from rich.table import Table
from rich.text import Text

from app.ground.db import transact
from app.ledger.audit import Breach, find_mark, keep_mark, snapshot
from app.ledger.audit import audit as audit_books
from cli.environment import as_text, books, console


@click.command()
@click.option("--full", is_flag=True, help="Walk everything, and open every value in the vault; not only what is new.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def audit(context: click.Context, *, full: bool, as_json: bool) -> None:
    """Prove the invariants on the live ledger, in one snapshot that is only read.

    Without --full: what was touched since the last clean audit, and all that is open.
    Exits with 1 when a row is in breach.
    """
    with books():
        with snapshot() as (session, now):
            since = None if full else find_mark(session)
            breaches = audit_books(session, since=since, full=full, now=now)
        if not breaches:
            transact(lambda tx: keep_mark(tx.session, at=now))
    walked = "everything" if since is None else f"what was touched since {since:%Y-%m-%d %H:%M:%S} UTC, and all that is open"
    if as_json:
        click.echo(_json(breaches, since=since, full=full, now=now))
    elif breaches:
        _print(breaches, walked)
    else:
        click.echo(f"the books balance; walked: {walked}")
    context.exit(1 if breaches else 0)


def _json(breaches: Sequence[Breach], *, since: datetime | None, full: bool, now: datetime) -> str:
    said = {"clean": not breaches, "full": full, "since": since, "at": now, "breaches": [asdict(breach) for breach in breaches]}
    return as_text(said)


def _print(breaches: Sequence[Breach], walked: str) -> None:
    table = Table(title="the books do not balance", caption=f"walked: {walked}", show_lines=True, expand=True)
    table.add_column("#", justify="right")
    table.add_column("check", no_wrap=True)
    table.add_column("rows", overflow="fold", ratio=1)
    for breach in breaches:
        named = [" ".join(f"{name}={value}" for name, value in row.items()) for row in breach.rows]
        more = [f"and {breach.count - len(named)} more"] if breach.count > len(named) else []
        said = Text.assemble((f"{breach.words}\n", "bold"), "\n".join([*named, *more]))
        table.add_row(str(breach.invariant), f"{breach.code}\n{breach.count} rows", said)
    console().print(table)
