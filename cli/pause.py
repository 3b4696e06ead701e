"""`daybook pause`: put the brake on a tenant, a route, a lane, a category or a country."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.table import Table

from app.desk.configure import get_tenant
from app.desk.pause import Scope
from app.desk.pause import pause as put_on
from app.ground.db import Tx, transact
from app.ledger.doctor import list_brakes
from cli.doctor import in_words
from cli.environment import actor, books, console
from policy.words import Category, Lane


def scoped(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what a brake holds, and why."""
    options = (
        click.option("--tenant", default="demo", show_default=True, help="Whose traffic."),
        click.option("--route", help="Only this route, by its name."),
        click.option("--lane", type=click.Choice([lane.value for lane in Lane]), help="Only this lane."),
        click.option("--category", type=click.Choice([category.value for category in Category]), help="Only this category."),
        click.option("--country", help="Only numbers of this country, by its two capital letters."),
        click.option("--reason", required=True, help="Why; it is kept, and shown to whoever asks what holds a text."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@scoped
def pause(*, tenant: str, reason: str, **scope: str | None) -> None:
    """Hold what was not prepared yet. What was goes on, and nothing that was handed off is recalled.

    Without --route, --lane, --category and --country everything of the tenant is held.
    """
    asked = Scope(**scope)
    with books():
        held = transact(lambda tx: _pause(tx, tenant, asked, reason))
    click.echo(f"paused {in_short(tenant, asked)}; `daybook resume` with the same options lets go")
    show(held)


def _pause(tx: Tx, tenant: str, scope: Scope, reason: str) -> list[Any]:
    tenant_id = get_tenant(tx.session, name=tenant)
    put_on(tx.session, tenant_id=tenant_id, scope=scope, actor=actor(), reason=reason, now=tx.now)
    return list_brakes(tx.session, tenant_id=tenant_id, now=tx.now)


def in_short(tenant: str, scope: Scope) -> str:
    """Say what a scope holds."""
    named = (("route", scope.route), ("lane", scope.lane), ("category", scope.category), ("country", scope.country))
    parts = [f"{kind} {name}" for kind, name in named if name is not None]
    return f"{', '.join(parts) or 'everything'} of tenant {tenant}"


def show(held: list[Any]) -> None:
    """Print which brakes are on, and how much each holds."""
    if not held:
        click.echo("nothing of this tenant is held")
        return
    table = Table(title="held now", title_justify="left", box=None, pad_edge=False)
    table.add_column("what", overflow="fold")
    table.add_column("rows", justify="right", no_wrap=True)
    table.add_column("for", justify="right", no_wrap=True)
    table.add_column("by", overflow="fold")
    table.add_column("why", overflow="fold")
    for row in held:
        table.add_row(row.label, str(row.count), in_words(row.age), row.started_by, row.cause)
    console().print(table)
