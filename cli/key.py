"""`daybook key`: make, list and revoke the keys to the API."""

from __future__ import annotations

import json
from collections.abc import Sequence
from uuid import UUID

import click
from rich.table import Table

from app.desk.action import record_action
from app.desk.configure import SCOPES, add_key, get_tenant, revoke_key
from app.desk.keys import list_keys
from app.ground.db import Tx, transact
from cli.environment import actor, as_text, books, console

TENANT = click.option("--tenant", default="demo", show_default=True, help="Whose keys.")


@click.group()
def key() -> None:
    """Make, list and revoke keys to the API."""


@key.command()
@TENANT
@click.option("--name", required=True, help="What the key is for.")
@click.option("--scope", "scopes", multiple=True, required=True, type=click.Choice(SCOPES), help="What it may do; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def add(*, tenant: str, name: str, scopes: Sequence[str], as_json: bool) -> None:
    """Make a key and print it: only its hash is kept."""
    with books():
        text = transact(lambda tx: _add(tx, tenant, name, scopes))
    if as_json:
        click.echo(json.dumps({"name": name, "scopes": list(scopes), "key": text}))
        return
    click.echo(text)
    click.echo("this is the only time it is shown", err=True)


@key.command("list")
@TENANT
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def list_(*, tenant: str, as_json: bool) -> None:
    """List a tenant's keys, without the keys."""
    with books():
        found = transact(lambda tx: list_keys(tx.session, tenant_id=get_tenant(tx.session, name=tenant)))
    if as_json:
        click.echo(as_text([row._asdict() for row in found]))
        return
    table = Table(box=None, pad_edge=False)
    for heading, may_fold in (("id", False), ("name", True), ("scopes", False), ("revoked", False)):
        table.add_column(heading, no_wrap=not may_fold, overflow="fold")
    for row in found:
        revoked = f"{row.revoked_at:%Y-%m-%d}" if row.revoked_at else "-"
        table.add_row(str(row.id), row.name, "\n".join(row.scopes), revoked)
    console().print(table)


@key.command()
@TENANT
@click.argument("key_id", type=click.UUID)
@click.pass_context
def revoke(context: click.Context, *, tenant: str, key_id: UUID) -> None:
    """Revoke a key, for good; `list` names its id. Exits with 1 when there is no such key, or it was revoked before."""
    with books():
        done = transact(lambda tx: _revoke(tx, tenant, key_id))
    click.echo(f"revoked {key_id}" if done else f"tenant {tenant} has no living key {key_id}", err=not done)
    context.exit(0 if done else 1)


def _add(tx: Tx, tenant: str, name: str, scopes: Sequence[str]) -> str:
    tenant_id = get_tenant(tx.session, name=tenant)
    text = add_key(tx.session, tenant_id=tenant_id, name=name, scopes=scopes, now=tx.now)
    _note(tx, tenant_id, "add_key", {"name": name, "scopes": list(scopes)})
    return text


def _revoke(tx: Tx, tenant: str, key_id: UUID) -> bool:
    tenant_id = get_tenant(tx.session, name=tenant)
    done = revoke_key(tx.session, tenant_id=tenant_id, key_id=key_id, now=tx.now)
    if done:
        _note(tx, tenant_id, "revoke_key", {"key_id": str(key_id)})
    return done


def _note(tx: Tx, tenant_id: UUID, verb: str, subject: dict[str, object]) -> None:
    record_action(tx.session, tenant_id=tenant_id, actor=actor(), verb=verb, subject=subject, reason="", now=tx.now)
