"""`daybook policy`: check, try, compare, publish and explain the rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from app.desk.configure import get_tenant
from app.desk.policy.line import PolicyRefused, Version, read_line, read_tenants
from app.desk.policy.publish import Published
from app.desk.policy.publish import publish as put_in_line
from app.desk.policy.source import Mistaken, Source, read_file
from app.ground.db import Tx, transact
from cli.environment import actor, as_text, books
from cli.policy_check import check, in_words, summary_of
from cli.policy_diff import diff
from cli.policy_explain import explain
from cli.policy_options import FILE, JSON, TENANT, Instant
from cli.policy_test import test
from policy.findings import rfc3339


@click.group()
def policy() -> None:
    """Check, try, compare, publish and explain the rules that decide who is contacted."""


for _command in (check, test, diff, explain):
    policy.add_command(_command)


@policy.command()
@click.argument("file", type=FILE)
@TENANT
@click.option("--from", "starts_at", type=Instant(), help="When it starts, instead of what the file says; changes the hash.")
@click.option("--reason", default="", help="Why; it is kept.")
@JSON
@click.pass_context
def publish(context: click.Context, *, file: Path, tenant: str, starts_at: datetime | None, reason: str, as_json: bool) -> None:
    """Publish a document as an immutable version. Exits with 1 when it is refused.

    A tenant's first version may start at any time, every other at least 60 s ahead. It must follow the
    version before it without a gap or an overlap; an end that a version leaves open is closed by the
    start of the next.
    """
    with books():
        try:
            source = read_file(file, starts_at=starts_at)
            done = transact(lambda tx: _publish(tx, tenant, source, reason))
        except Mistaken as error:
            click.echo("\n".join(f"{file}:{mistake}" for mistake in error.mistakes), err=True)
            context.exit(1)
        except PolicyRefused as error:
            click.echo(f"refused: {error}", err=True)
            context.exit(1)
    click.echo(as_text(_plain(done, tenant)) if as_json else "\n".join(_told(done, tenant)))


@policy.command("list")
@click.option("--tenant", help="Only this tenant's.")
@JSON
def list_(*, tenant: str | None, as_json: bool) -> None:
    """List published versions in the order in which they start, and which is in force."""
    with books():
        now, lines = transact(lambda tx: (tx.now, _lines(tx, tenant)))
    found = [version for line in lines for version in line]
    if as_json:
        click.echo(as_text([asdict(version) | {"policy": version.label, "in_force": version.holds(now)} for version in found]))
        return
    for version in found:
        until = rfc3339(version.ends_at) if version.ends_at is not None else "another one starts"
        reviewer = f"reviewed by {version.reviewer}" if version.reviewer else f"reviewed by nobody ({version.status})"
        click.echo(f"{_stands(version, now):9} {version.label} of tenant {version.tenant}")
        click.echo(f"          from {rfc3339(version.effective_from)} until {until}")
        click.echo(f"          owner {version.owner}, {reviewer}, sha256 {version.sha256[:12]}")


def _publish(tx: Tx, tenant: str, source: Source, reason: str) -> Published:
    tenant_id = get_tenant(tx.session, name=tenant)
    return put_in_line(tx.session, tenant_id=tenant_id, raw=source.raw, actor=actor(), reason=reason, now=tx.now)


def _lines(tx: Tx, tenant: str | None) -> list[list[Version]]:
    tenants = read_tenants(tx.session) if tenant is None else [get_tenant(tx.session, name=tenant)]
    return [read_line(tx.session, tenant_id=tenant_id) for tenant_id in tenants]


def _plain(done: Published, tenant: str) -> dict[str, Any]:
    return {"id": done.id, "tenant": tenant, **summary_of(done.document), **asdict(done.fit)}


def _told(done: Published, tenant: str) -> Iterator[str]:
    yield f"published for tenant {tenant}: {in_words(summary_of(done.document))}"
    place = done.fit
    if place.follows and place.lapsed_since is None:
        yield f"it follows {place.follows}, which ends when it starts"
    if place.lapsed_since is not None:
        yield f"until it starts nothing is in force: {place.follows} lapsed at {rfc3339(place.lapsed_since)}"
    if place.precedes:
        yield f"it ends when {place.precedes} starts"


def _stands(version: Version, now: datetime) -> str:
    if version.holds(now):
        return "in force"
    return "starts" if version.effective_from > now else "past"
