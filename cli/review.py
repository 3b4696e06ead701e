"""`daybook review`: list open questions, look at one, settle one or a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import click
from rich.table import Table
from rich.text import Text

from app.desk.configure import get_tenant
from app.desk.questions import OpenGroup, ReviewView, list_groups, list_questions, read_question
from app.desk.settle import AlreadySettled, Answer, CannotSettle, CountChanged, Group, Settled, settle, settle_group
from app.ground.db import Tx, transact
from cli.doctor import in_words
from cli.environment import actor, as_text, books, console
from policy.words import Settlement

TENANT = click.option("--tenant", default="demo", show_default=True, help="Whose questions.")
ROUTE = click.option("--route", help="Only this route, by its name.")
CAUSE = click.option("--cause", help="Only this cause, as `list` names it.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def review() -> None:
    """List open questions that only a person may settle, and settle them."""


@review.command("list")
@TENANT
@ROUTE
@CAUSE
@click.option("--each", is_flag=True, help="One by one, the oldest first, instead of by route and cause.")
@click.option("--after", type=click.UUID, help="Go on after this one.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1000), help="How many, one by one.")
@JSON
@click.pass_context
def list_(
    context: click.Context,
    *,
    tenant: str,
    route: str | None,
    cause: str | None,
    each: bool,
    after: UUID | None,
    limit: int,
    as_json: bool,
) -> None:
    """List open questions. Exits with 1 when there are some. --route, --cause and --after list them one by one."""
    one_by_one = each or any(given is not None for given in (route, cause, after))

    def read(tx: Tx) -> Sequence[OpenGroup | ReviewView]:
        tenant_id = get_tenant(tx.session, name=tenant)
        if not one_by_one:
            return list_groups(tx.session, tenant_id=tenant_id, now=tx.now)
        return list_questions(tx.session, tenant_id=tenant_id, route=route, cause=cause, after=after, limit=limit, now=tx.now)

    with books():
        found = transact(read)
    if as_json:
        click.echo(as_text([_plain(each_) for each_ in found]))
    elif not found:
        click.echo("nothing is asked")
    elif one_by_one:
        _print_questions([q for q in found if isinstance(q, ReviewView)], limit)
    else:
        _print_groups([g for g in found if isinstance(g, OpenGroup)])
    context.exit(1 if found else 0)


@review.command()
@click.argument("review_id", type=click.UUID)
@TENANT
@JSON
def show(*, review_id: UUID, tenant: str, as_json: bool) -> None:
    """Show one question, open or settled: what it is about, and how it can be settled now."""
    with books():
        view = transact(lambda tx: _read(tx, tenant, review_id))
    if as_json:
        click.echo(as_text(_plain(view)))
    else:
        _tell(view)


@review.command("settle")
@click.argument("review_id", type=click.UUID, required=False)
@TENANT
@ROUTE
@CAUSE
@click.option("--count", type=click.IntRange(min=1), help="How many the group is; without it they are only counted.")
@click.option("--as", "settlement", required=True, type=click.Choice([s.value for s in Settlement]), help="How.")
@click.option("--reason", required=True, help="Why; it is kept in clear, so it names no address.")
@click.pass_context
def settle_(
    context: click.Context,
    *,
    review_id: UUID | None,
    tenant: str,
    route: str | None,
    cause: str | None,
    count: int | None,
    settlement: str,
    reason: str,
) -> None:
    """Settle one question by its id, or a whole group by --cause and --route. Exits with 1 when something is left.

    delivered, failed: what became of it; a later receipt still counts. resend: try again, at the price of a
    possible second text; lets a parked row go. leave: closes it as unknown, or only notes it.
    """
    if (review_id is None) == (cause is None):
        raise click.UsageError("name one question by its id, or a group by --cause (and --route)")
    with books():
        answer = Answer(Settlement(settlement), reason, actor())
        try:
            if review_id is not None:
                transact(lambda tx: _settle(tx, tenant, review_id, answer))
                click.echo(f"settled as {settlement}: {review_id}")
                return
            group = _group(tenant, route, str(cause), count)
            if group is None:
                context.exit(1)
            settled = transact(lambda tx: _settle_group(tx, tenant, group, answer))
        except (AlreadySettled, CannotSettle, CountChanged) as error:
            click.echo(f"nothing is changed: {error}", err=True)
            context.exit(1)
    click.echo(f"settled as {settlement}: {settled.count}")
    for why, left in sorted(settled.left.items()):
        click.echo(f"left open: {left}, because {why.words}")
    context.exit(1 if settled.left else 0)


def _group(tenant: str, route: str | None, cause: str, count: int | None) -> Group | None:
    """Find the one group that is meant, as it was counted; without a count, count it now and leave it at that."""
    groups = transact(lambda tx: _groups(tx, tenant))
    meant = [g for g in groups if g.cause == cause and route in {None, g.route}]
    if not meant:
        click.echo(f"nothing is asked of the cause {cause}{f' on route {route}' if route else ''}")
        return None
    if len(meant) > 1:
        raise click.UsageError(f"several routes have this cause, name one by --route: {', '.join(str(g.route) for g in meant)}")
    if count is None:
        _print_groups(meant)
        click.echo(f"nothing is changed; to settle them, say the same with --count {meant[0].count}")
        return None
    return Group(meant[0].route, cause, count)


def _groups(tx: Tx, tenant: str) -> list[OpenGroup]:
    return list_groups(tx.session, tenant_id=get_tenant(tx.session, name=tenant), now=tx.now)


def _read(tx: Tx, tenant: str, review_id: UUID) -> ReviewView:
    return read_question(tx.session, tenant_id=get_tenant(tx.session, name=tenant), review_id=review_id, now=tx.now)


def _settle(tx: Tx, tenant: str, review_id: UUID, answer: Answer) -> None:
    settle(tx.session, tenant_id=get_tenant(tx.session, name=tenant), review_id=review_id, answer=answer, now=tx.now)


def _settle_group(tx: Tx, tenant: str, group: Group, answer: Answer) -> Settled:
    return settle_group(tx.session, tenant_id=get_tenant(tx.session, name=tenant), group=group, answer=answer, now=tx.now)


def _plain(found: OpenGroup | ReviewView) -> dict[str, Any]:
    if isinstance(found, OpenGroup):
        return asdict(found) | {"oldest_for": found.oldest_for.total_seconds()}
    question: dict[str, Any] = found.review._asdict()
    return question | {"open_for": found.open_for.total_seconds(), "answers": [*found.answers]}


def _print_groups(groups: Sequence[OpenGroup]) -> None:
    table = Table(box=None, pad_edge=False)
    for heading, is_number in (("cause", False), ("route", False), ("open", True), ("oldest", True), ("at stake", False)):
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    for g in groups:
        table.add_row(g.cause, g.route or "-", str(g.count), in_words(g.oldest_for), at_stake(g.stake))
    console().print(table)


def _print_questions(views: Sequence[ReviewView], limit: int) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("review", "for", "what, and how it can be settled"):
        table.add_column(heading, no_wrap=heading != "what, and how it can be settled", overflow="fold")
    for view in views:
        r = view.review
        asked = [r.cause, f"{r.type} {r.subject}", *([_stake(r.stake)] if r.stake else [])]
        said = Text.assemble("; ".join(asked), (f"\n→ {', '.join(view.answers)}", "dim"))
        table.add_row(str(r.id), in_words(view.open_for), said)
    console().print(table)
    if len(views) == limit:
        click.echo(f"there may be more: --after {views[-1].review.id}")


def _tell(view: ReviewView) -> None:
    r = view.review
    told = {
        "review": str(r.id),
        "cause": r.cause,
        "opened": f"{_at(r.opened_at)}, {in_words(view.open_for)} {'before it was settled' if r.settled_at else 'ago'}",
        "event": f"{r.event_id} ({r.type} {r.subject} for {r.recipient_ref})",
        "at stake": _stake(r.stake),
        "ends": _at(r.expires_at),
        "intent": f"{r.intent_id} ({r.channel}): {r.intent_state}",
        "attempt": f"{r.attempt_id}, number {r.attempt}, by route {r.route or '-'}: {r.attempt_state}",
        "prepared": _at(r.prepared_at),
    }
    if r.settled_at is None:
        told["can be settled as"] = ", ".join(view.answers)
    else:
        told["settled"] = f"as {r.settled_as} {_at(r.settled_at)}" + (f" by {r.settled_by}" if r.settled_by else "")
        told["why"] = r.settled_reason or "-"
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in told.items():
        table.add_row(name, value)
    console().print(table)
    click.echo(f"what was heard of it: daybook trace {r.event_id}")


def at_stake(stake: Sequence[Mapping[str, Any]]) -> str:
    """Say what is at risk, by unit."""
    return ", ".join(f"{each['count']} {each['unit']}" for each in stake) or "-"


def _stake(stake: Mapping[str, Any] | None) -> str:
    return at_stake([stake] if stake else [])


def _at(instant: datetime | None) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC" if instant else "-"
