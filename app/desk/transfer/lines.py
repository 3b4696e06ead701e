"""Lines of a file, CSV or JSONL: each is read by itself, so that a bad one costs nobody else anything."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TextIO

import orjson

from app.desk.transfer.cells import read_cell
from app.ground.errors import DaybookError

LINE_LENGTH: Final = 64 * 1024
TRUTH: Final = {"true": True, "false": False}
FLAGS: Final = frozenset({"wanted", "everything"})
"""The columns that are no text."""


class Form(StrEnum):
    """How a file is written."""

    CSV = "csv"
    JSONL = "jsonl"


class BadHeader(DaybookError):
    """The first line of a CSV file does not name the columns, so nothing in it can be understood."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or why it could not be read."""

    number: int
    fields: Mapping[str, Any] = field(default_factory=dict, repr=False)
    mistake: str | None = None


def read_lines(path: Path, form: Form, columns: Sequence[str], *, names: Sequence[str] = ("ref",)) -> Iterator[Line]:
    """Read a file's lines, without those that are empty; BadHeader when a CSV file does not begin with its columns.

    One column of `names` has to be among them: it says whom a line is about.

    No value that we take holds a line break, so a quote that nobody closed ends with its own line, and the
    numbers are those that an editor shows.
    """
    # What is no UTF-8 comes through as halves of surrogate pairs, which every field refuses in its place.
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=None) as text:
        numbered = _split(text)
        match form:
            case Form.CSV:
                yield from _rows(numbered, columns, names)
            case Form.JSONL:
                yield from (_object(number, line) for number, line in numbered)


def _split(text: TextIO) -> Iterator[tuple[int, str | None]]:
    """Give the lines that are not empty with their numbers; None for one that is too long to be one of ours."""
    number = 0
    while line := text.readline(LINE_LENGTH):
        number += 1
        if line.endswith("\n") or len(line) < LINE_LENGTH:
            if line.strip():
                yield number, line.rstrip("\n")
            continue
        while (rest := text.readline(LINE_LENGTH)) and not rest.endswith("\n"):
            pass
        yield number, None


def _rows(numbered: Iterator[tuple[int, str | None]], columns: Sequence[str], needed: Sequence[str]) -> Iterator[Line]:
    header = _header(next(numbered, None), columns, needed)
    for number, text in numbered:
        if text is None:
            yield Line(number, mistake=f"is longer than {LINE_LENGTH} characters")
            continue
        try:
            cells = _cells(text)
        except csv.Error:
            yield Line(number, mistake="has a quote that does not close, or text behind one that did")
            continue
        if len(cells) != len(header):
            yield Line(number, mistake=f"has {len(cells)} cells, and the header {len(header)}")
            continue
        named = ((name, read_cell(cell)) for name, cell in zip(header, cells, strict=True) if cell != "")
        yield Line(number, {name: TRUTH.get(cell.lower(), cell) if name in FLAGS else cell for name, cell in named})


def _header(first: tuple[int, str | None] | None, columns: Sequence[str], needed: Sequence[str]) -> list[str]:
    try:
        names = [name.strip() for name in _cells((first and first[1]) or "")]
    except csv.Error:
        names = []
    unknown = [place for place, name in enumerate(names, start=1) if name not in columns]
    if set(needed) & set(names) and not unknown and len(set(names)) == len(names):
        return names
    # The names are not quoted: without a header the first line is somebody's address.
    places = ", ".join(map(str, unknown)) if unknown else "none"
    known, one = ", ".join(columns), " or ".join(f"`{name}`" for name in needed)
    raise BadHeader(
        f"the first line must name columns, each once and {one} among them, of: {known}. Columns that are not: {places}"
    )


def _cells(text: str) -> list[str]:
    return next(csv.reader([text], strict=True), [])


def _object(number: int, text: str | None) -> Line:
    if text is None:
        return Line(number, mistake=f"is longer than {LINE_LENGTH} characters")
    try:
        read = orjson.loads(text)
        # orjson is strict about all but repeated names, of which it silently takes the last.
        json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError):
        return Line(number, mistake="is no well-formed JSON document that gives each name once")
    if not isinstance(read, dict):
        return Line(number, mistake="is no object")
    return Line(number, read)


def _once(pairs: Sequence[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError
