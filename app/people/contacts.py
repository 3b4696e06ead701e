"""Addresses: read them strictly, keep each as an immutable contact in the vault."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

import phonenumbers
import phonenumbers.timezone

from app.ground.errors import DaybookError
from app.ground.keys import KeyedHash, lasting_hash

UNKNOWN_ZONE = "Etc/Unknown"
LETTERS = re.compile(r"[A-Za-z]")
SIGNS = re.compile("[+\uff0b]")
PHONENUMBERS_VERSION: str = phonenumbers.__version__


class InvalidNumber(DaybookError):
    """The text is no telephone number that could exist; the message says why, without quoting it."""


@dataclass(frozen=True, slots=True)
class Number:
    """A valid telephone number and what its plan tells."""

    e164: str = field(repr=False)
    country: str | None
    """ISO 3166 alpha-2; None for shared codes that belong to no country."""
    zones: tuple[str, ...]
    """IANA zones it may lie in; empty when the plan does not tell."""


@lru_cache(maxsize=4096)
def read_number(text: str) -> Number:
    """Read a number in international form; InvalidNumber when it does not parse, is not one, or cannot exist.

    The library is generous (it reads letters as the keys they stand on, and drops extensions); a
    guess would send a text to somebody.
    """
    if LETTERS.search(text.removeprefix("tel:")):
        raise InvalidNumber("has letters, or an extension that cannot get a text")
    if len(SIGNS.findall(text)) > 1:
        raise InvalidNumber("is more than one number")
    try:
        parsed = phonenumbers.parse(text, None)
    except phonenumbers.NumberParseException as error:
        raise InvalidNumber("is not a telephone number in international form, like +12015550123") from error
    if parsed.extension:
        raise InvalidNumber("has an extension, which cannot get a text")
    if not phonenumbers.is_valid_number(parsed):
        raise InvalidNumber("looks like a telephone number but is not valid in its country's plan")
    country = phonenumbers.region_code_for_number(parsed)
    zones = tuple(z for z in phonenumbers.timezone.time_zones_for_number(parsed) if z != UNKNOWN_ZONE)
    e164 = phonenumbers.format_number(parsed, phonenumbers.PhoneNumberFormat.E164)
    return Number(e164, country if country and country.isalpha() else None, zones)


def address_hash(channel: str, address: str) -> KeyedHash:
    """Hash a normalised address: the same person's gate, suppression and contact meet under it."""
    return lasting_hash(f"address/{channel}", address.encode())
