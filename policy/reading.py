"""Read a mapping that came from YAML, strictly: every mistake is noted with its place, none is repaired.

A reader that notes a mistake returns a stand-in of the right type and goes on, so that one reading
finds them all. Stand-ins never leave: whoever starts a reading refuses the whole if anything was noted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from typing import Final, TypeVar

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake and where it is: `categories.marketing.hours[0].windows[1].end`."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class _Missing(Enum):
    """What stands where a key is not written; YAML's null is a value of its own."""

    MISSING = "missing"


MISSING: Final = _Missing.MISSING

_UNITS: Final = {"s": timedelta(seconds=1), "m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}
_DURATION: Final = re.compile(r"([0-9]{1,5})([smhd])")
_TIME_OF_DAY: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_EPOCH: Final = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class Node:
    """A value, its place, and the list that mistakes are noted in."""

    value: object
    path: str = ""
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, message: str) -> None:
        """Note a mistake, the first about each place; of a missing value enough has been said."""
        path = self.path or "document"
        if self.value is not MISSING and all(problem.path != path for problem in self.problems):
            self.problems.append(Problem(path, message))

    def is_absent(self) -> bool:
        """Say whether an optional key was left out or left empty."""
        return self.value is None or self.value is MISSING

    def fields(self, *, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Node]:
        """Read a mapping with exactly these keys."""
        required, known = tuple(required), (*required, *optional)
        found = self._mapping()
        for key in found:
            if key not in known:
                self._child(str(key), found[key]).wrong("is not a key we know")
        if isinstance(self.value, Mapping):
            self.problems.extend(Problem(self._below(key), "is missing") for key in required if key not in found)
        return {key: self._child(key, found.get(key, MISSING)) for key in known}

    def entries(self) -> list[tuple[Node, Node]]:
        """Read a mapping with keys of its own, each as a node too."""
        return [(self._child(str(key), key), self._child(str(key), value)) for key, value in self._mapping().items()]

    def items(self, *, some: bool = False) -> list[Node]:
        """Read a list without repetitions, of at least one item where `some` is asked for."""
        if not isinstance(self.value, list):
            self.wrong(f"must be a list, not {_shown(self.value)}")
            return []
        if some and not self.value:
            self.wrong("must name at least one")
        nodes = [Node(value, f"{self.path}[{index}]", self.problems) for index, value in enumerate(self.value)]
        for index, node in enumerate(nodes):
            if node.value in self.value[:index]:
                node.wrong("is there twice")
        return nodes

    def text(self) -> str:
        """Read a string that says something."""
        if not isinstance(self.value, str):
            self.wrong(f'must be a string in quotes, not {_shown(self.value)} ("no", 08:00 and dates are not strings in YAML)')
            return ""
        if not self.value.strip():
            self.wrong("must not be empty")
        return self.value

    def texts(self, *, some: bool = False) -> frozenset[str]:
        """Read a list of strings, of at least one where `some` is asked for."""
        return frozenset(item.text() for item in self.items(some=some))

    def flag(self) -> bool:
        """Read true or false."""
        if not isinstance(self.value, bool):
            self.wrong(f"must be true or false, not {_shown(self.value)}")
            return False
        return self.value

    def word(self, words: type[E]) -> E:
        """Read one word out of a closed list."""
        for member in words:
            if member.value == self.value:
                return member
        self.wrong(f"must be one of {', '.join(str(member.value) for member in words)}, not {_shown(self.value)}")
        return next(iter(words))

    def whole(self, *, at_least: int) -> int:
        """Read a whole number; fractions are refused, so that a document is hashed the same out of jsonb."""
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            self.wrong(f"must be a whole number, not {_shown(self.value)}")
            return at_least
        if self.value < at_least:
            self.wrong(f"must be at least {at_least}")
        return self.value

    def duration(self, *, zero: bool = False) -> timedelta:
        """Read a duration such as "30s", "10m", "24h" or "3d"."""
        match = _DURATION.fullmatch(self.value) if isinstance(self.value, str) else None
        if match is None:
            self.wrong(f'must be a duration such as "30s", "10m", "24h" or "3d", not {_shown(self.value)}')
            return timedelta()
        duration = int(match[1]) * _UNITS[match[2]]
        if not duration and not zero:
            self.wrong("must be longer than nothing")
        return duration

    def instant(self) -> datetime:
        """Read an instant with its zone, in UTC."""
        try:
            instant = datetime.fromisoformat(self.value) if isinstance(self.value, str) else None
        except ValueError:
            instant = None
        if instant is None:
            self.wrong(f'must be an instant in quotes such as "2026-11-01T00:00:00Z", not {_shown(self.value)}')
            return _EPOCH
        if instant.tzinfo is None:
            self.wrong("must name its zone, as in 2026-11-01T00:00:00Z")
            return _EPOCH
        return instant.astimezone(UTC)

    def calendar_date(self) -> date:
        """Read a calendar date."""
        try:
            return date.fromisoformat(self.value) if isinstance(self.value, str) else self._no_date()
        except ValueError:
            return self._no_date()

    def minute_of_day(self, *, end: bool = False) -> int:
        """Read a local time of day as minutes after midnight; an end may be 24:00."""
        if end and self.value == "24:00":
            return 24 * 60
        match = _TIME_OF_DAY.fullmatch(self.value) if isinstance(self.value, str) else None
        if match is None:
            self.wrong(f'must be a time in quotes such as "08:00" (YAML reads 21:00 as 1260), not {_shown(self.value)}')
            return 0
        return int(match[1]) * 60 + int(match[2])

    def _no_date(self) -> date:
        self.wrong(f'must be a date in quotes such as "2026-12-25", not {_shown(self.value)}')
        return _EPOCH.date()

    def _mapping(self) -> Mapping[object, object]:
        if isinstance(self.value, Mapping):
            return self.value
        self.wrong(f"must be a mapping, not {_shown(self.value)}")
        return {}

    def _below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _child(self, key: str, value: object) -> Node:
        return Node(value, self._below(key), self.problems)


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r}"
