"""Strict reading of JSON objects: every key is known, typed and in range, or a sentence says which is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TypeVar

T = TypeVar("T")
Word = TypeVar("Word", bound=StrEnum)
Reader = Callable[[object, str], T]


class RulesRefused(ValueError):
    """The rules cannot be used; the message names the place and what is wanted there."""


class Fields:
    """One JSON object, emptied key by key; what is left over at the end is a mistake."""

    def __init__(self, value: object, at: str) -> None:
        if not isinstance(value, Mapping):
            raise RulesRefused(f"{at}: an object is wanted")
        self._left = dict(value)
        self._at = at

    def take(self, name: str, read: Reader[T], default: T) -> T:
        """Read one key, or give the default where it is absent."""
        if name not in self._left:
            return default
        return read(self._left.pop(name), f"{self._at}.{name}")

    def find(self, name: str, read: Reader[T]) -> T | None:
        """Read one key that may be absent."""
        if name not in self._left:
            return None
        return read(self._left.pop(name), f"{self._at}.{name}")

    def get(self, name: str, read: Reader[T]) -> T:
        """Read one key that must be there."""
        if name not in self._left:
            raise RulesRefused(f"{self._at}.{name}: is missing")
        return read(self._left.pop(name), f"{self._at}.{name}")

    def end(self) -> None:
        """Refuse what nobody took: a mistyped fault would silently be no fault."""
        if self._left:
            raise RulesRefused(f"{self._at}.{min(map(str, self._left))}: is not a known key")


def anything(value: object, _at: str) -> object:
    """Leave the reading to somebody else."""
    return value


def text(value: object, at: str) -> str:
    """Read a string that is not empty."""
    if not isinstance(value, str) or not value:
        raise RulesRefused(f"{at}: a string that is not empty is wanted")
    return value


def any_text(value: object, at: str) -> str:
    """Read a string, which may be empty."""
    if not isinstance(value, str):
        raise RulesRefused(f"{at}: a string is wanted")
    return value


def flag(value: object, at: str) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise RulesRefused(f"{at}: true or false is wanted")
    return value


def whole(low: int, high: int) -> Reader[int]:
    """Make a reader of whole numbers between two bounds."""

    def read(value: object, at: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise RulesRefused(f"{at}: a whole number from {low} to {high} is wanted")
        return value

    return read


def number(low: float, high: float) -> Reader[float]:
    """Make a reader of numbers between two bounds."""

    def read(value: object, at: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise RulesRefused(f"{at}: a number from {low:g} to {high:g} is wanted")
        return float(value)

    return read


def word(words: type[Word]) -> Reader[Word]:
    """Make a reader of the members of an enumeration."""

    def read(value: object, at: str) -> Word:
        if value not in {str(member) for member in words}:
            raise RulesRefused(f"{at}: one of {', '.join(words)} is wanted")
        return words(value)

    return read


def items(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Make a reader of lists."""

    def read_all(value: object, at: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise RulesRefused(f"{at}: a list is wanted")
        return tuple(read(item, f"{at}[{index}]") for index, item in enumerate(value))

    return read_all
