"""Where the owner of a number may be: every zone that its plan allows; the number library names too few, or too many.

A number proves no location; these are the zones that must all be in a good hour when nobody has told us which.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from policy.words import NumberType
from policy.zones import canonical, zones_of

NORTH_AMERICA: Final = 1
AREA_CODE_LENGTH: Final = 3

# Nobody, or hardly anybody, lives by these clocks; one of them would close half a day for a whole country.
UNUSED: Final = frozenset(
    {"Asia/Urumqi", "Europe/Busingen", "Antarctica/Macquarie", "Antarctica/McMurdo", "Antarctica/Casey", "Antarctica/Davis"}
)
# Their mobile numbers have area codes, of which the number library knows the zones.
BY_AREA_CODE: Final = frozenset({"BR", "MX", "ID"})


@dataclass(frozen=True, slots=True)
class Area:
    """A North American area code."""

    country: str
    state: str | None
    zones: tuple[str, ...]


def area_of(calling_code: int | None, national: str) -> Area | None:
    """Find the area of a number; None outside North America and for codes that stand for no place."""
    return _areas().get(national[:AREA_CODE_LENGTH]) if calling_code == NORTH_AMERICA else None


def zones_for(country: str | None, number_type: NumberType, listed: Sequence[str], area: Area | None) -> tuple[str, ...]:
    """Name every zone that the owner may be in: by country, by area code, by what is listed for the place, in this order."""
    of_country = zones_of(country) - UNUSED if country else frozenset()
    if len(of_country) == 1 or not of_country:
        return tuple(sorted(of_country)) or tuple(listed)
    if area is not None and area.country == country:
        return area.zones
    moves = number_type is not NumberType.FIXED_LINE and country not in BY_AREA_CODE
    of_place = frozenset(map(canonical, listed)) & of_country
    return tuple(sorted(of_country if moves or not of_place else of_place))


@cache
def _areas() -> dict[str, Area]:
    text = resources.files("app.people").joinpath("area_codes.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
    return {code: Area(country, None if state == "-" else state, tuple(zones.split(","))) for code, country, state, zones in rows}
