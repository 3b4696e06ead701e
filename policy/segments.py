"""How many parts a text takes on the air: GSM-7 or UCS-2, split as handsets join it again."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Encoding(StrEnum):
    """How a text travels; one character outside GSM-7 moves all of it to UCS-2."""

    GSM_7 = "GSM-7"
    UCS_2 = "UCS-2"


@dataclass(frozen=True, slots=True)
class Segments:
    """What a text costs: units are septets in GSM-7, UTF-16 code units in UCS-2."""

    encoding: Encoding
    units: int
    segments: int
    units_per_segment: tuple[int, ...]


# 3GPP TS 23.038, section 6.2.1: the default alphabet without its escape, and the characters that
# follow an escape and so take two septets.
GSM_7_BASIC: Final = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?"
    "¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
)
GSM_7_EXTENSION: Final = frozenset("\f^{}\\[~]|€")
GSM_7: Final = GSM_7_BASIC | GSM_7_EXTENSION

# A short message carries 140 octets; a part of a longer one gives six of them to the header that
# joins the parts (TS 23.040, section 9.2.3.24.1, 8-bit reference).
UNITS_ALONE: Final = {Encoding.GSM_7: 160, Encoding.UCS_2: 70}
UNITS_PER_PART: Final = {Encoding.GSM_7: 153, Encoding.UCS_2: 67}

LAST_SINGLE_UNIT: Final = 0xFFFF  # above it a code point is a surrogate pair in UTF-16


def count(text: str) -> Segments:
    """Count encoding, units and parts of a body as it will be handed off."""
    characters = set(text)
    if characters <= GSM_7:
        encoding, double = Encoding.GSM_7, characters & GSM_7_EXTENSION
    else:
        encoding, double = Encoding.UCS_2, {c for c in characters if ord(c) > LAST_SINGLE_UNIT}
    units = len(text) + sum(map(text.count, double))
    parts = (units,) if units <= UNITS_ALONE[encoding] else _split(text, double, UNITS_PER_PART[encoding])
    return Segments(encoding, units, len(parts), parts)


def _split(text: str, double: AbstractSet[str], room: int) -> tuple[int, ...]:
    """Fill parts in order; an escape or surrogate pair never straddles two, so a part may stay one unit short."""
    parts = [0]
    for character in text:
        cost = 2 if character in double else 1
        if parts[-1] + cost > room:
            parts.append(0)
        parts[-1] += cost
    return tuple(parts)
