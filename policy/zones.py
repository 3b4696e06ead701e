"""Time zones, read from the pinned tzdata package alone, so that a decision is the same on every machine."""

from __future__ import annotations

from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo


def find_zone(name: str) -> ZoneInfo | None:
    """Find a zone by its IANA name; None for one the pinned data does not know, such as `Etc/Unknown`."""
    return _read(name) if name in _names() else None


@cache
def _names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


@cache
def _read(name: str) -> ZoneInfo:
    # ZoneInfo(name) would prefer the machine's own files, and an old set of those moves legal hours:
    # data before 2026b puts Vancouver an hour early in winter.
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)
