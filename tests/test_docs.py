"""The docs are true: what they name exists, what they link resolves, what they list is the catalogue."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import pytest

from cli.main import main
from policy.words import CATALOGUE
from tests.conftest import ROOT, World
from web import create_app
from web.problems import PROBLEMS

PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
NAMES: Final = [page.relative_to(ROOT).as_posix() for page in PAGES]

# `daybook trace`, .venv/bin/daybook trace and `python -m cli migrate` are the same command.
COMMAND: Final = re.compile(
    r"(?:`(?:\.venv/bin/)?daybook |^\s*(?:\.venv/bin/)?daybook |python -m cli )([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", re.MULTILINE
)
PLANNED: Final = {"recover"}
"""Named in the runbook as not there yet."""
API_PATH: Final = re.compile(r"/(?:v1/[a-z_/<>*-]+|health/[a-z]+|metrics\b|docs\b(?!/)|openapi\.json)")
LINK: Final = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
ROW: Final = re.compile(r"^\| `([a-z_]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def section(page: str, heading: str) -> str:
    """Give what stands under a heading of the second level."""
    return text_of(page).split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def rows_under(page: str, heading: str) -> Mapping[str, tuple[str, str]]:
    return {code: (one, two) for code, one, two in ROW.findall(section(page, heading))}


def anchor_of(heading: str) -> str:
    """Make a heading's anchor as GitHub does."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors_of(page: Path) -> set[str]:
    return {anchor_of(heading) for heading in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


def is_broken(page: Path, target: str) -> bool:
    if target.startswith(("https://", "http://")):
        return False
    name, _, anchor = target.partition("#")
    aimed = (page.parent / name).resolve() if name else page
    return not aimed.exists() or bool(anchor and anchor not in anchors_of(aimed))


def is_command(name: str, further: str) -> bool:
    context = click.Context(main)
    found = main.get_command(context, name)
    if isinstance(found, click.Group) and further:
        return found.get_command(context, further) is not None
    return found is not None


def test_the_table_of_reasons_is_the_catalogue() -> None:
    assert rows_under("docs/states.md", "Reasons") == {str(code): said for code, said in CATALOGUE.items()}


def test_the_table_of_errors_is_the_catalogue() -> None:
    expected = {code: (str(kind.status), kind.title) for code, kind in PROBLEMS.items()}

    assert rows_under("docs/api.md", "Errors") == expected


@pytest.mark.parametrize("page", NAMES)
def test_every_command_that_is_named_exists(page: str) -> None:
    named = {(name, further) for name, further in COMMAND.findall(text_of(page)) if name not in PLANNED}

    assert [pair for pair in sorted(named) if not is_command(*pair)] == []


@pytest.mark.parametrize("page", NAMES)
def test_every_path_that_is_named_exists(world: World, page: str) -> None:
    del world  # the app reads settings
    shape = re.compile(r"<[^>]+>")
    routed = {shape.sub("<>", rule.rule) for rule in create_app().url_map.iter_rules()}

    named = {shape.sub("<>", path).rstrip("/") for path in API_PATH.findall(text_of(page))}

    assert sorted(named - routed) == []


@pytest.mark.parametrize("page", NAMES)
def test_every_link_resolves(page: str) -> None:
    file = ROOT / page

    assert [target for target in LINK.findall(file.read_text()) if is_broken(file, target)] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"

    indexed = set(re.findall(r"\]\((\d{4}-[a-z0-9-]+\.md)\)", (folder / "README.md").read_text()))

    assert indexed == {file.name for file in folder.glob("[0-9]*.md")}


def test_every_setting_is_in_the_changelog() -> None:
    """Whoever runs Daybook looks for a setting there."""
    sources = [ROOT / name for name in ("app/ground/config.py", "Procfile", "app.json")]
    read = set(
        re.findall(r"\b(?:DAYBOOK_[A-Z_]+|[A-Z]+_(?:URL|CONCURRENCY|PORT|SIGTERM))\b", "\n".join(f.read_text() for f in sources))
    )

    assert sorted(name for name in read if f"`{name}`" not in text_of("CHANGELOG.md")) == []
