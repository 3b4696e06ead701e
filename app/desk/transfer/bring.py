"""Bring a page of lines in: what is good is kept, what is not is named by line and column, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.asked import problem_of, read_ref
from app.desk.transfer.lines import Line
from app.desk.transfer.nouns import Item, Noun
from app.ledger.request import Problem
from app.people.contacts import read_number
from app.people.persons import NotKept

PAGE: Final = 500
"""Lines kept in one transaction: a kill loses no more than these, and the next run brings them."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Why a line was not kept; it quotes nothing of it."""

    line: int
    column: str
    code: str
    detail: str


@dataclass(slots=True)
class Brought:
    """What became of lines."""

    new: int = 0
    known: int = 0
    mistakes: list[Mistake] = field(default_factory=list)

    def add(self, other: Brought) -> None:
        """Count another page in."""
        self.new += other.new
        self.known += other.known
        self.mistakes += other.mistakes


@dataclass(frozen=True, slots=True)
class Asked:
    """A page as it was read: well-formed items with their lines, and the mistakes of the others."""

    items: Sequence[tuple[int, Item]]
    mistakes: Sequence[Mistake]


def read_page(noun: Noun, lines: Sequence[Line], *, region: str | None, refs: dict[str, int]) -> Asked:
    """Read lines; `refs` remembers where each person stands in the file, over its pages.

    Numbers without a country code are read as they are dialled in `region`.
    """
    items: list[tuple[int, Item]] = []
    mistakes: list[Mistake] = []
    for line in lines:
        read = _item(noun, line, region, refs)
        if isinstance(read, list):
            mistakes += [_mistake(line.number, problem) for problem in read]
        else:
            items.append((line.number, read))
    return Asked(items, mistakes)


def keep_page(
    session: Session, noun: Noun, asked: Asked, *, tenant_id: UUID, actor: str, action_id: UUID, now: datetime
) -> Brought:
    """Keep the well-formed items of a page, which follow from an action; keeping it again keeps nothing new."""
    brought = Brought(mistakes=list(asked.mistakes))
    if not asked.items:
        return brought
    record = noun.record(action_id)
    results = record(session, [item for _, item in asked.items], tenant_id=tenant_id, actor=actor, now=now)
    for (number, _), result in zip(asked.items, results, strict=True):
        if isinstance(result, NotKept):
            brought.mistakes.append(_mistake(number, problem_of(result, instant=noun.instant)))
        elif result.is_new:
            brought.new += 1
        else:
            brought.known += 1
    brought.mistakes.sort(key=lambda mistake: mistake.line)
    return brought


def _item(noun: Noun, line: Line, region: str | None, refs: dict[str, int]) -> Item | list[Problem]:
    if line.mistake is not None:
        return [Problem("invalid_field", line.mistake)]
    fields: Mapping[str, Any] = {name: value for name, value in line.fields.items() if name != "ref"}
    nameless = line.fields.get("ref") is None and noun.names != ("ref",)
    ref = "" if nameless else read_ref(line.fields.get("ref"))
    if isinstance(ref, list):
        return ref
    read = noun.read(fields, ref, partial(read_number, default_region=region))
    first = refs.setdefault(ref, line.number) if noun.once and not isinstance(read, list) else line.number
    if first != line.number:
        return [Problem("invalid_field", f"stands in line {first} already", "/ref")]
    return read


def _mistake(line: int, problem: Problem) -> Mistake:
    return Mistake(line, problem.pointer.lstrip("/"), problem.code, problem.detail)
