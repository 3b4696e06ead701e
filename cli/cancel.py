"""`daybook cancel`: call a whole occasion off, and say who had been told of it."""

from __future__ import annotations

from uuid import UUID

import click
from rich.table import Table

from app.desk.cancellation import (
    Begun,
    CancellationView,
    begin_cancellation,
    cancel_occasion,
    occasion_of,
    read_cancellation,
)
from app.desk.configure import get_tenant
from app.ground.db import Tx, transact
from app.ledger.cancellation import Occasion
from cli.environment import actor, books, console

SHOWN_AT_MOST = 1000


@click.command()
@click.option("--tenant", default="demo", show_default=True, help="Whose events.")
@click.option("--type", "kind", required=True, help="Their type.")
@click.option("--subject", required=True, help="Their subject: the occasion.")
@click.option("--except", "excepted", multiple=True, help="A recipient's ref that stays as it is; as often as needed.")
@click.option("--reason", required=True, help="Why; it is kept.")
@click.option("--key", help="Under the same key it is the same cancellation: to go on with one that was broken off.")
def cancel(*, tenant: str, kind: str, subject: str, excepted: tuple[str, ...], reason: str, key: str | None) -> None:
    """Cancel everything of a type and subject that has not left. What has left is named, and nothing of it is recalled."""
    asked = occasion_of(kind, subject, excepted)
    with books():
        begun = transact(lambda tx: _begin(tx, tenant, asked, reason, key))
        cancel_occasion(begun)
        view = transact(lambda tx: _read(tx, begun.tenant_id, begun.id))
    show(view)


def _begin(tx: Tx, tenant: str, asked: Occasion, reason: str, key: str | None) -> Begun:
    tenant_id = get_tenant(tx.session, name=tenant)
    return begin_cancellation(tx.session, tenant_id=tenant_id, asked=asked, reason=reason, actor=actor(), key=key, now=tx.now)


def _read(tx: Tx, tenant_id: UUID, cancellation_id: UUID) -> CancellationView:
    return read_cancellation(tx.session, tenant_id=tenant_id, cancellation_id=cancellation_id, after=None, limit=SHOWN_AT_MOST)


def show(view: CancellationView) -> None:
    """Print what a cancellation found."""
    found = ", ".join(f"{n} {word.replace('_', ' ')}" for word, n in (view.counts or {}).items())
    click.echo(f"cancellation {view.id}: {found}")
    if not view.handed_off:
        return
    table = Table(title="handed off before", title_justify="left", box=None, pad_edge=False)
    for column in ("recipient", "channel", "state now", "event"):
        table.add_column(column, overflow="fold")
    for each in view.handed_off:
        table.add_row(each.recipient_ref, each.channel, each.state, str(each.event_id))
    console().print(table)
    if view.next_cursor is not None:
        click.echo(f"and more: GET /v1/cancellations/{view.id}?after={view.next_cursor}")
