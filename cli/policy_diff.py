"""`daybook policy diff`: what another version would have decided otherwise, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import click
from rich.table import Table

from app.desk.configure import get_tenant
from app.desk.policy.compare import Change, Comparison, Said, compare, find_document
from app.desk.policy.source import Mistaken, read_file
from app.ground.db import transact
from cli.environment import Trouble, as_text, books, console
from cli.policy_options import JSON, TENANT, Since
from policy.document import Document
from policy.findings import rfc3339

SHOWN: Final = 50
"""Rows of a list in a terminal; --json has them all."""


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@TENANT
@click.option("--since", type=Since(), default="30d", show_default=True, help="How far back: 12h, 30d, or an instant.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20_000, show_default=True, help="How many decisions, the newest first."
)
@JSON
def diff(*, one: str, other: str, tenant: str, since: datetime | timedelta, limit: int, as_json: bool) -> None:
    """Replay stored evidence under two versions, and show what changes for whom.

    A and B are files, or labels of published versions. Recipients are named by the application's own
    reference, never by an address. Nothing is written and nobody is contacted.
    """
    with books():
        tenant_id, now = transact(lambda tx: (get_tenant(tx.session, name=tenant), tx.now))
        first, second = _document(one, tenant_id), _document(other, tenant_id)
        start = now - since if isinstance(since, timedelta) else since
        found = compare(first, second, tenant_id=tenant_id, since=start, limit=limit)
    if as_json:
        click.echo(as_text(_plain(found, first, second, start)))
    else:
        _print(found, first, second, start)


def _document(wanted: str, tenant_id: UUID) -> Document:
    if Path(wanted).exists():
        try:
            return read_file(Path(wanted)).document
        except Mistaken as error:
            raise Trouble(f"{wanted} is no policy document: `daybook policy check {wanted}` says why") from error
    return transact(lambda tx: find_document(tx.session, tenant_id=tenant_id, label=wanted))


def _plain(found: Comparison, one: Document, other: Document, since: datetime) -> dict[str, object]:
    return {
        "before": {"policy": one.label, "sha256": one.sha256},
        "after": {"policy": other.label, "sha256": other.sha256},
        "since": since,
        "decisions": found.decision_count,
        "intents": found.intent_count,
        "unreadable": found.unreadable_count,
        "complete": found.is_complete,
        "counts": found.counts(),
        "newly_contacted": [asdict(change) for change in found.newly],
        "no_longer_contacted": [asdict(change) for change in found.no_longer],
        "changes": [asdict(change) for change in found.changes],
    }


def _print(found: Comparison, one: Document, other: Document, since: datetime) -> None:
    click.echo(
        f"{one.label} ({one.sha256[:12]}) → {other.label} ({other.sha256[:12]}): "
        f"{found.decision_count} decisions about {found.intent_count} intents since {rfc3339(since)}"
    )
    if not found.is_complete:
        click.echo("older decisions were not looked at: raise --limit")
    if found.unreadable_count:
        click.echo(f"{found.unreadable_count} decisions keep evidence that cannot be replayed, and are left out")
    if not found.changes:
        click.echo("nothing changes for anybody")
        return
    _print_counts(found)
    _print_list("would NEWLY be contacted", found.newly)
    _print_list("would no longer be contacted then", found.no_longer)
    told = {change.intent_id for change in (*found.newly, *found.no_longer)}
    _print_list("change otherwise", [change for change in found.changes if change.intent_id not in told])


def _print_counts(found: Comparison) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("intents", "before", "after", "category", "country"):
        table.add_column(heading, justify="right" if heading == "intents" else "left", overflow="fold")
    for row in found.counts():
        before = " ".join(word for word in (row["before"], row["reason_before"]) if word)
        after = " ".join(word for word in (row["after"], row["reason_after"]) if word)
        table.add_row(str(row["intents"]), before, after, row["category"], row["country"] or "-")
    console().print(table)


def _print_list(title: str, changes: Sequence[Change]) -> None:
    if not changes:
        return
    click.echo(f"\n{len(changes)} {title}:")
    for change in changes[:SHOWN]:
        click.echo(f"  {change.recipient_ref}  intent {change.intent_id}  {change.category}, {change.country or 'no country'}")
        click.echo(f"    at {rfc3339(change.decided_at)}: {_words(change.before)} → {_words(change.after)}")
    if len(changes) > SHOWN:
        click.echo(f"  … and {len(changes) - SHOWN} more; --json has them all")


def _words(said: Said) -> str:
    until = f"until {rfc3339(said.not_before)}" if said.not_before is not None else None
    return " ".join(word for word in (said.verdict, said.reason, until) if word)
