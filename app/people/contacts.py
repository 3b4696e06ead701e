"""Addresses: read them strictly, keep each as an immutable contact in the vault."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import phonenumbers
import phonenumbers.re_util
import phonenumbers.timezone
from phonenumbers import PhoneNumber, PhoneNumberFormat, PhoneNumberType

from app.ground.errors import DaybookError
from app.ground.keys import KeyedHash, lasting_hash
from app.people.residence import area_of, zones_for
from policy.words import NumberType
from policy.zones import UNKNOWN

LENGTH: Final = 40
"""Longer than any way to write one number."""
PHONENUMBERS_VERSION: Final[str] = phonenumbers.__version__
SHOWN_DIGITS: Final = 2
# Else patterns of many countries push each other out of the small cache that they share with all others, and are compiled again.
phonenumbers.re_util.enable_pattern_cache()

TYPES: Final = {getattr(PhoneNumberType, kind.name): kind for kind in NumberType}


class InvalidNumber(DaybookError):
    """The text is no telephone number that could exist; the message says why, without quoting it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A valid telephone number and what its plan tells."""

    e164: str = field(repr=False)
    country: str | None
    """ISO 3166 alpha-2, or XK; None for shared codes that belong to no country."""
    type: NumberType
    zones: tuple[str, ...]
    """Every IANA zone its owner may be in; empty when the plan does not tell."""
    listed_zones: tuple[str, ...]
    """Those that the number library lists: evidence of the plan, too few or too many for a decision."""
    subdivisions: tuple[str, ...]
    """The parts of the country, as in ISO 3166-2, that its area code stands for."""


@lru_cache(maxsize=4096)
def read_number(text: str, default_region: str | None = None) -> Number:
    """Read a number; InvalidNumber when it does not parse, is not one, or cannot exist.

    In international form, or as it is dialled in `default_region`. The library is generous (it reads
    letters as the keys they stand on, and drops extensions); a guess would send a text to somebody.
    """
    parsed = _parse(_plain(text), default_region)
    if parsed.extension:
        raise InvalidNumber("has an extension, which cannot get a text")
    parsed = _without_old_prefix(parsed)
    found = phonenumbers.number_type(parsed)
    if found == PhoneNumberType.UNKNOWN:  # the library's own test of validity, asked once: each question matches every plan again
        raise InvalidNumber("looks like a telephone number but is not valid in its country's plan")
    number_type = TYPES[found]
    region = phonenumbers.region_code_for_number(parsed)
    country = region if region and region.isalpha() else None
    listed = tuple(z for z in _listed_zones(parsed, found) if z != UNKNOWN)
    area = area_of(parsed.country_code, phonenumbers.national_significant_number(parsed))
    return Number(
        e164=phonenumbers.format_number(parsed, PhoneNumberFormat.E164),
        country=country,
        type=number_type,
        zones=zones_for(country, number_type, listed, area),
        listed_zones=listed,
        subdivisions=(area.state,) if area is not None and area.state and area.country == country else (),
    )


def _listed_zones(parsed: PhoneNumber, found: int) -> Sequence[str]:
    # What the library does itself for a type that has a place, without finding out the type again.
    if phonenumbers.is_number_type_geographical(found, parsed.country_code or 0):
        return phonenumbers.timezone.time_zones_for_geographical_number(parsed)
    return phonenumbers.timezone.time_zones_for_number(parsed)


def _plain(text: str) -> str:
    """Take out what a copied number carries along unseen, and refuse what is more than one number."""
    plain = unicodedata.normalize("NFKC", "".join(c for c in text if unicodedata.category(c) != "Cf")).strip()
    plain = plain.removeprefix("tel:")
    if len(plain) > LENGTH:
        raise InvalidNumber("is longer than a telephone number")
    if any(c.isalpha() for c in plain):
        raise InvalidNumber("has letters, or an extension that cannot get a text")
    if plain.count("+") > 1:
        raise InvalidNumber("is more than one number")
    return plain


def _parse(plain: str, default_region: str | None) -> PhoneNumber:
    try:
        return phonenumbers.parse(plain, default_region)
    except phonenumbers.NumberParseException as error:
        raise InvalidNumber("is not a telephone number with the plus and country code, like +12015550123") from error


def _without_old_prefix(parsed: PhoneNumber) -> PhoneNumber:
    """Drop the 1 that mobile numbers of Mexico had after the country code until 2019; they go on working without it."""
    national = phonenumbers.national_significant_number(parsed)
    if (parsed.country_code, len(national), national[:1]) != (52, 11, "1"):
        return parsed
    return PhoneNumber(country_code=52, national_number=int(national[1:]))


def address_hash(channel: str, address: str) -> KeyedHash:
    """Hash a normalised address: the same person's gate, suppression and contact meet under it."""
    return lasting_hash(f"address/{channel}", address.encode())


def masked(address: str) -> str:
    """Write an address as it may be shown: enough to recognise, too little to call."""
    return "•" * (len(address) - SHOWN_DIGITS) + address[-SHOWN_DIGITS:]
