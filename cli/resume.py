"""`daybook resume`: let a brake go."""

from __future__ import annotations

from typing import Any

import click

from app.desk.configure import get_tenant
from app.desk.pause import Scope
from app.desk.pause import resume as let_go
from app.ground.db import Tx, transact
from app.ledger.doctor import list_brakes
from cli.environment import actor, books
from cli.pause import in_short, scoped, show


@click.command()
@scoped
@click.pass_context
def resume(context: click.Context, /, *, tenant: str, reason: str, **scope: str | None) -> None:
    """End the pauses of exactly this scope; others that hold the same traffic go on holding it.

    Exits with 1 when there was none of exactly this scope.
    """
    asked = Scope(**scope)
    with books():
        ended, held = transact(lambda tx: _resume(tx, tenant, asked, reason))
    said = f"resumed {in_short(tenant, asked)}" if ended else f"no pause of exactly this scope: {in_short(tenant, asked)}"
    click.echo(f"{said}; pauses ended: {ended}")
    show(held)
    context.exit(0 if ended else 1)


def _resume(tx: Tx, tenant: str, scope: Scope, reason: str) -> tuple[int, list[Any]]:
    tenant_id = get_tenant(tx.session, name=tenant)
    ended = let_go(tx.session, tenant_id=tenant_id, scope=scope, actor=actor(), reason=reason, now=tx.now)
    return ended, list_brakes(tx.session, tenant_id=tenant_id, now=tx.now)
