"""Time zones, read from the pinned tzdata package alone, so that a decision is the same on every machine."""

from __future__ import annotations

import zoneinfo
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Final
from zoneinfo import ZoneInfo

# The machine's own files would be preferred, and an old set of those moves legal hours: data before
# 2026b puts Vancouver an hour early in winter. This is the one place that turns them off, and it
# forgets what may have been read out of them before.
zoneinfo.reset_tzpath(to=())
ZoneInfo.clear_cache()

UNKNOWN: Final = "Etc/Unknown"


def find_zone(name: str) -> ZoneInfo | None:
    """Find a zone by its IANA name; None for one the pinned data does not know, such as `Etc/Unknown`."""
    return ZoneInfo(name) if name in _names() else None


@cache
def tzdata_version() -> str:
    """Name the zone data in use: it is evidence, since it changes answers."""
    return version("tzdata")


@cache
def zones_of(country: str) -> frozenset[str]:
    """Name every zone of a country, as IANA lists them; none for a country that it does not know."""
    return _by_country().get(country, frozenset())


@cache
def canonical(name: str) -> str:
    """Give the name that IANA lists for a country, where a zone is also known by an older one with the same clock."""
    return _backward().get(name, name)


@cache
def _names() -> frozenset[str]:
    return frozenset(resources.files("tzdata").joinpath("zones").read_text(encoding="ascii").split())


@cache
def _by_country() -> dict[str, frozenset[str]]:
    # Kosovo has numbers and a clock, but no letters in ISO 3166-1.
    found: dict[str, set[str]] = {"XK": {"Europe/Belgrade"}}
    for line in _table("zone.tab"):
        country, _, zone = line.split("\t")[:3]
        found.setdefault(country, set()).add(zone.strip())
    return {country: frozenset(zones) for country, zones in found.items()}


@cache
def _backward() -> dict[str, str]:
    """Read the links of the data's own source: `L Asia/Kolkata Asia/Calcutta`."""
    links = (line.split() for line in _table("tzdata.zi") if line.startswith("L "))
    listed = frozenset().union(*_by_country().values())
    return {old: new for _, new, old in links if old not in listed}


def _table(name: str) -> list[str]:
    text = resources.files("tzdata").joinpath("zoneinfo", name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]
