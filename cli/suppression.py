"""`daybook suppression`: who is not to be contacted, how that came about, and the lists of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import click

from app.desk.asked import problem_of, read_suppression_of
from app.desk.configure import get_tenant
from app.desk.policy.sentences import provenance_of
from app.desk.suppress import Lifted, lift_suppressions, order_suppression
from app.desk.transfer.nouns import SUPPRESSIONS
from app.ground.db import Tx, transact
from app.ledger.request import LOOKS_PERSONAL, Problem
from app.people.contacts import InvalidNumber, address_hash, read_number
from app.people.persons import NotKept
from app.people.provenance import Act, Page, acts_of_address, acts_of_person
from app.people.recipients import get_known
from app.people.suppressions import Told
from cli.environment import Trouble, actor, as_text, books
from cli.transfer import TENANT, transfers
from policy.words import Category, Channel, SuppressedBy

suppression: Final[click.Group] = transfers(
    SUPPRESSIONS, "See, order and lift suppressions, which say who is not to be contacted; import and export lists of them."
)

PAGE: Final = 1000
REF: Final = click.argument("ref", required=False)
SMS: Final = click.option("--sms", help="A number instead of a recipient; in international form.")
JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
REASON: Final = click.option("--reason", required=True, help="Why; it is kept in clear.")


@suppression.command("list")
@REF
@SMS
@TENANT
@click.option("--standing", is_flag=True, help="Only what stands.")
@JSON
def list_(*, ref: str | None, sms: str | None, tenant: str, standing: bool, as_json: bool) -> None:
    """List what was said of a recipient's numbers, or of one number: when, how, by which message, and what lifted it."""
    _one_of(ref, sms)
    with books():
        found = transact(lambda tx: _list(tx, tenant, ref, sms, standing=standing))
    if as_json:
        click.echo(as_text([asdict(act) for act in found]))
        return
    click.echo("\n".join(line for act in found for line in _told(act)) or "nothing was said: whoever it is may be contacted")


@suppression.command()
@REF
@SMS
@TENANT
@click.option("--channel", type=click.Choice([*map(str, Channel)]), default=str(Channel.SMS), show_default=True)
@click.option("--category", type=click.Choice([*map(str, Category)]), help="Only this category; else every one.")
@click.option("--everything", is_flag=True, help="Whatever the rules say; with no --category.")
@click.option(
    "--source",
    type=click.Choice([*map(str, SuppressedBy)]),
    default=str(SuppressedBy.OPERATOR),
    show_default=True,
    help="How it was heard.",
)
@REASON
@JSON
def add(*, ref: str | None, sms: str | None, tenant: str, as_json: bool, **asked: Any) -> None:  # noqa: ANN401 - click's options
    """Suppress a recipient, at every number that is known of them, or one number."""
    _one_of(ref, sms)
    document = {name: value for name, value in ({"sms": sms} | asked).items() if value is not None}
    with books():
        told = transact(lambda tx: _add(tx, tenant, ref, document))
    if as_json:
        click.echo(as_text({"suppressions": told.ids, "duplicate": not told.is_new}))
        return
    click.echo("suppressed" if told.is_new else "suppressed before, by the same source: nothing was changed")
    click.echo("\n".join(f"  {each}" for each in told.ids))


@suppression.command()
@click.argument("ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
@TENANT
@REASON
@JSON
@click.pass_context
def lift(context: click.Context, *, ids: Sequence[UUID], tenant: str, reason: str, as_json: bool) -> None:
    """Lift suppressions by their ids, which `list` names, whatever their source. Exits with 1 when none of them stood."""
    if LOOKS_PERSONAL.search(reason):
        raise Trouble("--reason must not hold an address: it is kept in clear")
    with books():
        lifted = transact(lambda tx: _lift(tx, tenant, ids, reason))
    if as_json:
        click.echo(as_text({"lifted": lifted.lifted, "lifted_before": lifted.before}))
    else:
        click.echo(f"{len(lifted.lifted)} lifted, {len(lifted.before)} lifted before")
    context.exit(0 if lifted.lifted else 1)


def _one_of(ref: str | None, sms: str | None) -> None:
    if (ref is None) is (sms is None):
        raise click.UsageError("name a recipient's REF, or a number with --sms")


def _list(tx: Tx, tenant: str, ref: str | None, sms: str | None, *, standing: bool) -> list[Act]:
    tenant_id = get_tenant(tx.session, name=tenant)
    found: list[Act] = []
    page = Page(PAGE, standing=standing)
    while True:
        if ref is not None:
            get_known(tx.session, tenant_id=tenant_id, ref=ref)
            acts = acts_of_person(tx.session, page, tenant_id=tenant_id, ref=ref)
        else:
            acts = acts_of_address(tx.session, page, tenant_id=tenant_id, digest=_digest(sms or ""))
        found += acts
        if len(acts) < PAGE:
            return found
        page = replace(page, after=acts[-1].id)


def _digest(sms: str) -> bytes:
    try:
        return address_hash(Channel.SMS, read_number(sms).e164).digest
    except InvalidNumber as error:
        raise Trouble(f"--sms {error}") from error


def _add(tx: Tx, tenant: str, ref: str | None, document: dict[str, Any]) -> Told:
    tenant_id = get_tenant(tx.session, name=tenant)
    asked = read_suppression_of(document, ref=ref)
    if isinstance(asked, list):
        raise Trouble("; ".join(map(_in_words, asked)))
    told = order_suppression(tx.session, asked, tenant_id=tenant_id, actor=actor(), now=tx.now)
    if isinstance(told, NotKept):
        raise Trouble(_in_words(problem_of(told)))
    return told


def _lift(tx: Tx, tenant: str, ids: Sequence[UUID], reason: str) -> Lifted:
    tenant_id = get_tenant(tx.session, name=tenant)
    return lift_suppressions(tx.session, ids, tenant_id=tenant_id, actor=actor(), reason=reason, now=tx.now)


def _in_words(problem: Problem) -> str:
    return f"{problem.pointer.lstrip('/')} {problem.detail}".strip()


def _told(act: Act) -> Iterator[str]:
    reach = act.category or ("everything" if act.everything else "every category")
    standing = "stands" if act.stands else f"lifted by {act.lifted_by}" if act.lifted_by else ""
    what = f"lifts {', '.join(map(str, act.lifts))}" if act.lifts else reach
    yield "  ".join(part for part in (str(act.id), act.act, act.channel, act.address, act.source, what, standing) if part)
    if act.act == "suppress":
        yield f"    {provenance_of(act, clock=_clock)}"
    else:
        yield f"    {_clock(act.at)}, by {act.recorded_by}{f': {act.reason}' if act.reason else ''}"


def _clock(at: datetime) -> str:
    return f"on {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
