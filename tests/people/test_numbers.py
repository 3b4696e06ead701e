"""Telephone numbers, as the fixtures say: read without a guess, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from app.people.contacts import InvalidNumber, read_number

PATH: Final = Path(__file__).parents[1] / "fixtures" / "phones.jsonl"
LINES: Final[list[dict[str, Any]]] = [line for line in map(json.loads, PATH.read_text().splitlines()) if "input" in line]
# The API takes the international form only: lines that lean on a default region come with imports.
INTERNATIONAL: Final = [line for line in LINES if line["default_region"] is None]
REFUSED: Final = [
    line for line in INTERNATIONAL if not line["valid"] or line["sms"]["reason"] in {"extension", "multiple_numbers_or_signs"}
]
READ: Final = [line for line in INTERNATIONAL if line not in REFUSED]


@pytest.mark.parametrize("line", READ, ids=lambda line: line["id"])
def test_a_valid_number_is_read_with_its_country_and_zones(line: dict[str, Any]) -> None:
    number = read_number(line["input"])

    assert (number.e164, number.country) == (line["e164"], line["country"] if line["country"] != "001" else None)
    assert set(number.zones) == {zone for zone in line["zones"] if zone != "Etc/Unknown"}


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line["id"])
def test_what_is_no_single_valid_number_is_refused_and_not_quoted(line: dict[str, Any]) -> None:
    with pytest.raises(InvalidNumber) as refusal:
        read_number(line["input"])

    assert len(line["input"]) < len("+1201") or line["input"] not in str(refusal.value)


@pytest.mark.parametrize("text", ["+1201555CALL", "+12015550123x7", "+12015550123 ext. 7"])
def test_letters_are_no_digits(text: str) -> None:
    with pytest.raises(InvalidNumber):
        read_number(text)
