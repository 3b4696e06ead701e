"""A copy of the tree with one bug planted in it, and pytest run there as a process of its own."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.house import ROOT


@dataclass(frozen=True, slots=True)
class Edit:
    """One exact replacement of text in one file."""

    path: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug that somebody could write, and the tests that must notice."""

    name: str
    edits: Sequence[Edit]
    tests: Sequence[str]


class CodeMoved(AssertionError):
    """An edit does not find its text exactly once: the bug must be planted anew where the code is now."""


def copy_tree(target: Path) -> Path:
    """Copy what git knows, or would know: as it is in the working tree, committed or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)
    return target


def plant(tree: Path, edits: Iterable[Edit]) -> None:
    """Make the replacements; CodeMoved when one of them does not fit exactly once."""
    for edit in edits:
        path = tree / edit.path
        text = path.read_text() if path.exists() else ""
        if text.count(edit.old) != 1:
            raise CodeMoved(f"{edit.path} holds this {text.count(edit.old)} times and not once:\n{edit.old}")
        path.write_text(text.replace(edit.old, edit.new))


def run_tests(tree: Path, tests: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run tests in a tree, against its own code, until the first one fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "tests.planted.copied", *tests]
    # The width keeps the summary's lines whole: they say why a test failed.
    env = {**environment, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    return subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=300, check=False)


def failed_assertions(told: str, tests: Sequence[str]) -> list[str]:
    """Name those of the tests that failed because what they claim was not so, from pytest's summary."""
    failures = re.findall(r"^FAILED (\S+?)(?:\[.*?\])? - (?:assert |AssertionError)", told, re.MULTILINE)
    return [test for test in tests if test in failures]
