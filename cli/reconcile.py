"""`daybook reconcile`: where the books wait for, or contradict, what others say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import click
from rich.table import Table

from app.desk.configure import get_tenant
from app.ground.db import Tx, transact
from app.ledger.reconciliation import SHOWN_FOR, Summary, View, read_view, summarise
from cli.doctor import in_words
from cli.environment import as_text, books, console
from cli.policy_options import Since
from cli.review import at_stake


@click.command()
@click.argument("view", required=False, type=click.Choice([v.value for v in View]))
@click.option("--tenant", default="demo", show_default=True, help="Whose books.")
@click.option("--since", type=Since(), help="Of what happened once, only what happened since: an instant, or 12h, 30d (default).")
@click.option("--after", type=click.UUID, help="Go on after this row of a view.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many rows of a view.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def reconcile(
    context: click.Context,
    *,
    view: str | None,
    tenant: str,
    since: datetime | timedelta | None,
    after: UUID | None,
    limit: int,
    as_json: bool,
) -> None:
    """Count what each reconciliation view holds, or show one's rows. Exits with 1 when there is something in it."""
    views = [View(view)] if view else [*View]

    def read(tx: Tx) -> tuple[list[Summary], list[Any]]:
        tenant_id = get_tenant(tx.session, name=tenant)
        start = since if isinstance(since, datetime) else tx.now - (since or SHOWN_FOR)
        found = summarise(tx.session, views, tenant_id=tenant_id, since=start, now=tx.now)
        if view is None:
            return found, []
        page = read_view(tx.session, views[0], tenant_id=tenant_id, since=start, after=after, limit=limit, now=tx.now)
        return found, page

    with books():
        summaries, page = transact(read)
    if as_json:
        said: dict[str, Any] = {"views": [_plain(s) for s in summaries]}
        click.echo(as_text(said | ({"rows": [row._asdict() for row in page]} if view else {})))
    else:
        _print(summaries)
        if page:
            _print_rows(page, limit)
    context.exit(1 if any(s.count for s in summaries) else 0)


def _plain(summary: Summary) -> dict[str, Any]:
    oldest = summary.oldest_for.total_seconds() if summary.oldest_for is not None else None
    return asdict(summary) | {"meaning": summary.view.words, "oldest_for": oldest}


def _print(summaries: Sequence[Summary]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading, is_number in (("view", False), ("count", True), ("oldest", True), ("at stake", False), ("what", False)):
        no_wrap = is_number or heading == "view"
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=no_wrap, overflow="fold")
    for s in summaries:
        style = "dim" if s.count == 0 else ""
        table.add_row(s.view, str(s.count), in_words(s.oldest_for), at_stake(s.stake), s.view.words, style=style)
    console().print(table)


def _print_rows(page: Sequence[Any], limit: int) -> None:
    table = Table(box=None, pad_edge=False, title="")
    for heading in ("since (UTC)", "event or receipt", "what"):
        table.add_column(heading, no_wrap=heading != "what", overflow="fold")
    for row in page:
        about = [row.detail, *([f"{row.type} {row.subject}"] if row.type else []), *([f"route {row.route}"] if row.route else [])]
        table.add_row(f"{row.at:%m-%d %H:%M:%S}", str(row.event_id or row.receipt_id), "; ".join(about))
    console().print(table)
    if len(page) == limit:
        click.echo(f"there may be more: --after {page[-1].id}")
