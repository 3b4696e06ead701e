"""`daybook receipt`: replay what a route refused while a secret was wrong."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import click

from app.desk.configure import get_tenant
from app.desk.replay import START, Replay, Replayed, replay_refused
from app.ground.db import Tx, transact
from cli.environment import actor, as_text, books


@click.group()
def receipt() -> None:
    """Replay what a route refused while a secret was wrong."""


@receipt.command("replay")
@click.argument("route")
@click.option("--tenant", default="demo", show_default=True, help="Whose route.")
@click.option("--credentials-of", metavar="ROUTE", help="Verify with this route's credentials; a route's own never change.")
@click.option("--reason", required=True, help="Why; it is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def replay_(context: click.Context, *, route: str, tenant: str, credentials_of: str | None, reason: str, as_json: bool) -> None:
    """Verify a route's refused receipts again and keep what verifies now, as if it had just come.

    What still does not verify stays as it is. Repeating it does no harm. Exits with 1 when some stay refused.
    """
    with books():
        pages = _replay_all(tenant, Replay(route, credentials_of, reason, actor()))
    kept: Counter[str] = Counter()
    for page in pages:
        kept.update(page.kept)
    refused, unopened = sum(page.refused for page in pages), sum(page.unopened for page in pages)
    if as_json:
        click.echo(as_text({"kept": kept, "refused": refused, "unopened": unopened}))
    else:
        by_status = ", ".join(f"{count} {status}" for status, count in sorted(kept.items()))
        click.echo(f"kept: {kept.total()}{f' ({by_status})' if by_status else ''}")
        click.echo(f"still refused: {refused}")
        if unopened:
            click.echo(f"not opened, for their vault key is missing: {unopened}")
    context.exit(1 if refused or unopened else 0)


def _replay_all(tenant: str, replay: Replay) -> list[Replayed]:
    """Replay page by page, a transaction each."""
    pages: list[Replayed] = []
    after: UUID | None = START
    while after is not None:
        page = _page(tenant, replay, after)
        pages.append(page)
        after = page.next_after
    return pages


def _page(tenant: str, replay: Replay, after: UUID) -> Replayed:
    return transact(lambda tx: _replay(tx, tenant, replay, after))


def _replay(tx: Tx, tenant: str, replay: Replay, after: UUID) -> Replayed:
    return replay_refused(tx.session, replay, tenant_id=get_tenant(tx.session, name=tenant), after=after, now=tx.now)
