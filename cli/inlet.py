"""`daybook inlet`: what other programs inserted that waits, or was refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from app.ground.db import transact
from app.ledger.inlet import list_inlet
from cli.environment import as_text, books, console


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many of each.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
@click.pass_context
def inlet(context: click.Context, *, limit: int, as_json: bool) -> None:
    """Show inlet rows that wait or were refused, with their errors. Exits with 1 when some were refused."""
    with books():
        found = transact(lambda tx: list_inlet(tx.session, limit=limit))
    if as_json:
        click.echo(as_text([row._asdict() for row in found]))
    elif found:
        _print(found)
    else:
        click.echo("nothing waits in the inlet, and nothing was refused")
    context.exit(1 if any(row.status == "refused" for row in found) else 0)


def _print(found: Sequence[Any]) -> None:
    table = Table(box=None, pad_edge=False, expand=True)
    table.add_column("id", justify="right", no_wrap=True)
    table.add_column("tenant", overflow="fold")
    table.add_column("status", no_wrap=True)
    table.add_column("inserted (UTC)", no_wrap=True)
    table.add_column("why", overflow="fold", ratio=1)
    for row in found:
        why = "\n".join(f"{p['code']} {p['pointer']}: {p['detail']}" for p in (row.error or {}).get("problems", []))
        table.add_row(str(row.id), row.tenant, row.status, f"{row.created_at:%Y-%m-%d %H:%M:%S}", why)
    console().print(table)
