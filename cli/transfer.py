"""What importing and exporting have in common, whatever is brought in or given out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final
from uuid import UUID

import click
import phonenumbers

from app.desk.action import record_action
from app.desk.configure import get_tenant
from app.desk.transfer.bring import PAGE, Asked, Brought, keep_page, read_page
from app.desk.transfer.give import Given, give_page, write_header
from app.desk.transfer.lines import Form, Line, read_lines
from app.desk.transfer.nouns import Noun
from app.ground.db import Tx, transact
from cli.environment import actor, books

PROGRESS: Final = 5000
"""Lines between two words of progress."""
CHUNK: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Noted:
    """For whom something is done, and the action that says who does it."""

    tenant_id: UUID
    action_id: UUID


TENANT: Final = click.option("--tenant", default="demo", show_default=True, help="Whose people.")
FORMAT: Final = click.option(
    "--format", "form", type=click.Choice([form.value for form in Form]), help="How the file is written; else by its name."
)


def transfers(noun: Noun, about: str) -> click.Group:
    """Make the group of a noun's two commands, import and export."""

    @click.group(name=noun.name.removesuffix("s"), help=about)
    def group() -> None:
        pass

    group.add_command(_importing(noun))
    group.add_command(_exporting(noun))
    return group


def _importing(noun: Noun) -> click.Command:
    @click.command("import", help=_import_help(noun))
    @click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @TENANT
    @FORMAT
    @click.option("--region", callback=_region, help="Where numbers without a country code are dialled, like GB.")
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object, mistakes included.")
    @click.pass_context
    def importing(
        context: click.Context, *, file: Path, tenant: str, form: str | None, region: str | None, as_json: bool
    ) -> None:
        with books():
            brought = _bring(noun, file, _form_of(file, form), tenant, region, quiet=as_json)
        if as_json:
            click.echo(json.dumps(asdict(brought)))
        else:
            refused = len({mistake.line for mistake in brought.mistakes})
            click.echo(f"{noun.name}: {brought.new} new, {brought.known} known before, {refused} lines refused")
        context.exit(1 if brought.mistakes else 0)

    return importing


def _exporting(noun: Noun) -> click.Command:
    @click.command("export", help=_export_help(noun))
    @TENANT
    @click.option(
        "--output", default="-", type=click.File("w", encoding="utf-8", lazy=True), help="A file; else standard output."
    )
    @FORMAT
    def exporting(*, tenant: str, output: IO[str], form: str | None) -> None:
        with books():
            given, erased = _give(noun, output, _form_of(Path(output.name), form), tenant)
        left_out = f", {erased} left out of people who were erased" if erased else ""
        click.echo(f"{noun.name}: {given} given out{left_out}", err=True)

    return exporting


def _import_help(noun: Noun) -> str:
    return (
        f"Bring {noun.name} in from FILE, CSV with a header or JSONL. Columns: {', '.join(noun.columns)}.\n\n"
        "A line that cannot be kept is named with its reason and changes nothing; the others are kept. Importing a file again, "
        "after a mistake was corrected or after it was interrupted, keeps nothing twice. Exits with 1 when lines were refused."
    )


def _export_help(noun: Noun) -> str:
    return f"Give {noun.name} out, addresses in clear, in the columns that `import` takes. That it was done is kept."


def _region(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    del context, parameter
    if value is not None and value not in phonenumbers.SUPPORTED_REGIONS:
        raise click.BadParameter("is no region with telephone numbers; write it like GB")
    return value


def _form_of(file: Path, form: str | None) -> Form:
    return Form(form) if form else Form.JSONL if file.suffix.lower() in {".jsonl", ".ndjson"} else Form.CSV


def _bring(noun: Noun, path: Path, form: Form, tenant: str, region: str | None, *, quiet: bool) -> Brought:
    digest, total = _measure(path)
    noted = _note(f"import_{noun.name}", {"sha256": digest, "line_count": total, "format": form}, tenant)
    brought, refs = Brought(), dict[str, int]()
    told = 0
    for lines in _pages(read_lines(path, form, noun.columns, names=noun.names)):
        page = _keep(noun, read_page(noun, lines, region=region, refs=refs), noted)
        brought.add(page)
        if quiet:
            continue
        for mistake in page.mistakes:
            click.echo(f"line {mistake.line}: {mistake.column} {mistake.detail}".replace(":  ", ": "), err=True)
        if lines[-1].number - told >= PROGRESS:
            told = lines[-1].number
            click.echo(f"{told:,} of {total:,} lines", err=True)
    return brought


def _keep(noun: Noun, asked: Asked, noted: Noted) -> Brought:
    tenant_id, action_id = noted.tenant_id, noted.action_id
    return transact(
        lambda tx: keep_page(tx.session, noun, asked, tenant_id=tenant_id, actor=actor(), action_id=action_id, now=tx.now)
    )


def _pages(lines: Iterator[Line]) -> Iterator[Sequence[Line]]:
    while page := list(islice(lines, PAGE)):
        yield page


def _measure(path: Path) -> tuple[str, int]:
    """Give a file's digest, by which the books name it, and how many lines it has."""
    digest, lines, last = hashlib.sha256(), 0, b"\n"
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return digest.hexdigest(), lines + (last != b"\n")


def _give(noun: Noun, output: IO[str], form: Form, tenant: str) -> tuple[int, int]:
    tenant_id = _note(f"export_{noun.name}", {"format": form}, tenant).tenant_id
    output.write(write_header(noun, form))
    count = erased = 0
    after: UUID | str | None = None
    while True:
        page = transact(_giving(noun, form, tenant_id, after))
        output.write(page.text)
        count, erased, after = count + page.count, erased + page.erased, page.last
        if after is None:
            return count, erased


def _giving(noun: Noun, form: Form, tenant_id: UUID, after: UUID | str | None) -> Callable[[Tx], Given]:
    return lambda tx: give_page(tx.session, noun, form, tenant_id=tenant_id, after=after)


def _note(verb: str, subject: dict[str, Any], tenant: str) -> Noted:
    """Keep that somebody does this, before it is done."""

    def work(tx: Tx) -> Noted:
        tenant_id = get_tenant(tx.session, name=tenant)
        action_id = record_action(
            tx.session, tenant_id=tenant_id, actor=actor(), verb=verb, subject=subject, reason="", now=tx.now
        )
        return Noted(tenant_id, action_id)

    return transact(work)
