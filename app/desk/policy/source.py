"""Read a policy document as a person wrote it: strict YAML, every mistake with its path, line and column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.reader import ReaderError

from app.ground.errors import DaybookError
from policy.document import Document, InvalidDocument, parse
from policy.findings import rfc3339
from policy.reading import Problem

_TAG: Final = "tag:yaml.org,2002:"
# YAML 1.1 reads 010 as eight, 0x10 as sixteen and 1_0 as ten; nobody who writes rules means that.
_ODD_NUMBER: Final = re.compile(r"[-+]?(0[0-9_]+|0[xb][0-9a-fA-F_]+|[0-9]+_[0-9_]*)")

# A hundred times what the sample holds; nine short lines of aliases would otherwise take all memory.
MOST_VALUES: Final = 200_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a text, counted from one as editors do."""

    line: int
    column: int


TOP: Final = Place(1, 1)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake, where it is in the document and where in the text."""

    path: str
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place.line}:{self.place.column}: {self.path}: {self.message}"


class Mistaken(DaybookError):
    """A text is no policy document; `mistakes` holds every one in the order of the text."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = sorted(mistakes, key=lambda mistake: (mistake.place.line, mistake.place.column))


class NoText(DaybookError):
    """A file cannot be read, or is no text."""


@dataclass(frozen=True, slots=True)
class Source:
    """A document, the mapping it was read from, and where everything stands."""

    raw: dict[str, Any]
    document: Document
    places: dict[str, Place]

    def place_of(self, path: str) -> Place:
        """Find a path, or the nearest that is written above it."""
        return _place_of(path, self.places)


def read_file(file: Path, *, starts_at: datetime | None = None) -> Source:
    """Read one document out of a file; NoText or Mistaken when there is none."""
    return read(read_text(file), starts_at=starts_at)


def read_text(file: Path) -> str:
    """Read a file's text; NoText when it has none."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise NoText(f"{file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise NoText(f"{file}: is not UTF-8 (byte {error.start})") from error


def read(text: str, *, starts_at: datetime | None = None) -> Source:
    """Read one document, or raise Mistaken with every mistake: of YAML, of the schema, and what YAML would let pass.

    With `starts_at` it is the document that starts then, whatever is written: another one, with another hash.
    """
    value, places, mistakes = read_yaml(text)
    if starts_at is not None and isinstance(value, dict):
        value["effective_from"] = rfc3339(starts_at)
    try:
        document = parse(value)
    except InvalidDocument as error:
        told = {mistake.path for mistake in mistakes}
        mistakes += [_mistake(problem, places) for problem in error.problems if problem.path not in told]
        raise Mistaken(mistakes) from error
    if mistakes:
        raise Mistaken(mistakes)
    return Source(value, document, places)


def read_yaml(text: str) -> tuple[Any, dict[str, Place], list[Mistake]]:
    """Read one YAML value, the place of each path in it, and what a strict reader has against it."""
    try:
        nodes = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise Mistaken([Mistake("document", _place(mark) if mark else TOP, f"is not YAML: {said}")]) from error
    except RecursionError as error:
        raise Mistaken([Mistake("document", TOP, "is nested too deeply")]) from error
    except ReaderError as error:
        before = text[: error.position]
        place = Place(before.count("\n") + 1, error.position - before.rfind("\n"))
        said = f"holds a character that no text should (U+{int(error.character):04X})"
        raise Mistaken([Mistake("document", place, said)]) from error
    if len(nodes) != 1 or nodes[0] is None:
        place = _place(nodes[1].start_mark) if len(nodes) > 1 else TOP
        raise Mistaken([Mistake("document", place, "must be one YAML document to a file, and not an empty one")])
    reading = _Reading()
    value = reading.value_of(nodes[0], "")
    return value, reading.places, reading.mistakes


@dataclass(slots=True)
class _Reading:
    """Values out of YAML nodes, as SafeLoader gives them, and what it would have passed over in silence."""

    places: dict[str, Place] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)
    count: int = 0
    inside: set[int] = field(default_factory=set)
    """The nodes that are being read: an alias of one of them has no end."""

    def value_of(self, node: yaml.Node, path: str) -> Any:  # noqa: ANN401 - YAML is anything
        """Build the value of a node, an alias as if it were written out."""
        self.places.setdefault(path, _place(node.start_mark))
        self.count += 1
        if self.count > MOST_VALUES or id(node) in self.inside:
            raise Mistaken([Mistake(path, _place(node.start_mark), "repeats itself too often: write it out")])
        self.inside.add(id(node))
        value = self._build(node, path)
        self.inside.remove(id(node))
        return value

    def _build(self, node: yaml.Node, path: str) -> Any:  # noqa: ANN401 - YAML is anything
        if isinstance(node, yaml.MappingNode):
            self._expect(node, "map", path)
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            self._expect(node, "seq", path)
            return [self.value_of(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag == _TAG + "merge":
                self._note(path, key_node, "has a key that is no word")
                continue
            key = self._scalar(key_node, path)
            below = f"{path}.{key}" if path else str(key)
            if key in found:
                first = self.places[below]
                self._note(below, key_node, f"is written twice, first in line {first.line}")
                continue
            on_line = isinstance(value_node, yaml.ScalarNode)
            self.places[below] = _place((value_node if on_line and value_node.value else key_node).start_mark)
            found[key] = self.value_of(value_node, below)
        return found

    def _scalar(self, node: yaml.Node, path: str) -> Any:  # noqa: ANN401 - YAML is anything
        if node.tag == _TAG + "int" and _ODD_NUMBER.fullmatch(str(node.value)):
            self._note(path, node, f"is written in a way that YAML reads as another number: {node.value}")
        try:
            return SafeConstructor().construct_object(node)
        except (ConstructorError, ValueError, OverflowError):
            self._note(path, node, f"cannot be read: put {node.value!r} in quotes, without a tag")
            return None

    def _expect(self, node: yaml.Node, tag: str, path: str) -> None:
        if node.tag != _TAG + tag:
            self._note(path, node, f"must not have a tag of its own ({node.tag})")

    def _note(self, path: str, node: yaml.Node, message: str) -> None:
        self.mistakes.append(Mistake(path or "document", _place(node.start_mark), message))


def _mistake(problem: Problem, places: dict[str, Place]) -> Mistake:
    return Mistake(problem.path, _place_of(problem.path, places), problem.message)


def _place_of(path: str, places: dict[str, Place]) -> Place:
    while path and path not in places:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return places.get(path, TOP)


def _place(mark: Any) -> Place:  # noqa: ANN401 - one of two classes, by how PyYAML was built
    return Place(mark.line + 1, mark.column + 1)
