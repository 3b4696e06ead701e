"""Telephone numbers, as the fixtures say: read without a guess, or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import policy
from app.people.contacts import InvalidNumber, Number, read_number
from policy.decide import decide
from policy.document import Document, parse
from policy.words import Category, Reason
from policy.zones import find_zone
from tests.policy.making import NOON, make_facts

FIXTURES: Final = Path(__file__).parents[1] / "fixtures"
SAMPLE: Final = Path(policy.__file__).parent / "documents" / "sample-2026-12-01.yaml"
LINES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in (FIXTURES / "phones.jsonl").read_text(encoding="utf-8").splitlines()
]
AREAS: Final[dict[str, dict[str, Any]]] = json.loads((FIXTURES / "nanp_npa.json").read_text(encoding="utf-8"))["npa"]
PLACES: Final = {code: area for code, area in AREAS.items() if area["kind"] == "geographic"}

# Why a number that exists may not be contacted is the policy's to say, and needs evidence.
BY_POLICY: Final = ("type:", "non_geographic")
REWRITTEN: Final = "rewritten_mx_legacy_1"
READ: Final = [line for line in LINES if line["sms"]["action"] == "accept" or line["sms"]["reason"].startswith(BY_POLICY)]
REFUSED: Final = [line for line in LINES if line not in READ]
AS_THE_LIBRARY_SAYS: Final = [line for line in READ if line["sms"]["reason"] != REWRITTEN]


def read(line: dict[str, Any]) -> Number:
    return read_number(line["input"], line["default_region"])


@pytest.mark.parametrize("line", AS_THE_LIBRARY_SAYS, ids=lambda line: line["id"])
def test_a_valid_number_is_read_with_its_country_type_and_zones(line: dict[str, Any]) -> None:
    number = read(line)

    assert (number.e164, number.country) == (line["e164"], line["country"] if line["country"] != "001" else None)
    assert number.type == line["type"].lower()
    assert set(number.listed_zones) == {zone for zone in line["zones"] if zone != "Etc/Unknown"}


@pytest.mark.parametrize("line", [line for line in READ if line["sms"]["action"] == "accept"], ids=lambda line: line["id"])
def test_an_accepted_number_is_written_as_it_is_to_be_called(line: dict[str, Any]) -> None:
    assert read(line).e164 == line["sms"]["e164"]


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line["id"])
def test_what_is_no_single_valid_number_is_refused_and_not_quoted(line: dict[str, Any]) -> None:
    with pytest.raises(InvalidNumber) as refusal:
        read(line)

    assert len(line["input"]) < len("+1201") or line["input"] not in str(refusal.value)


@pytest.fixture(scope="module")
def sample() -> Document:
    return parse(yaml.safe_load(SAMPLE.read_text(encoding="utf-8")) | {"countries": {"allowed": "all"}})


@pytest.mark.parametrize("line", READ, ids=lambda line: line["id"])
def test_a_valid_number_that_the_policy_does_not_permit_is_suppressed_with_evidence(
    line: dict[str, Any], sample: Document
) -> None:
    number = read(line)
    facts = make_facts(
        category=Category.OTP, country=number.country, zones=number.zones, number_type=number.type, accepted_at=NOON
    )

    decision = decide(sample, facts, now=NOON)

    reasons = {"ok": None, REWRITTEN: None, "non_geographic": Reason.COUNTRY_BLOCKED}
    assert decision.reason == reasons.get(line["sms"]["reason"], Reason.NUMBER_TYPE_BLOCKED)
    assert decision.evidence["facts"] == facts.as_evidence()


@pytest.mark.parametrize("text", ["+1201555CALL", "+12015550123x7", "+12015550123 ext. 7", "+1" + " " * 40 + "2015550123"])
def test_letters_are_no_digits(text: str) -> None:
    with pytest.raises(InvalidNumber):
        read_number(text)


@pytest.mark.parametrize("local", ["0161 496 0000", "+44 (0)161 496 0000", "0044 161 496 0000", "161 496 0000"])
def test_however_it_is_written_a_number_is_one_person(local: str) -> None:
    """Gate, suppressions, consents and contact hang on the normal form."""
    assert read_number(local, "GB") == read_number("+441614960000")


@pytest.mark.parametrize("code", sorted(PLACES))
def test_an_area_code_stands_for_its_state_and_the_zones_of_all_its_prefixes(code: str) -> None:
    """By prefix, the library gives one zone where people with the same code live in two."""
    area = PLACES[code]
    numbers = [number for prefix in ("234", "555", "732") if (number := find_number(f"+1{code}{prefix}1234"))]

    assert all(number.zones == tuple(area["zones"]) for number in numbers if number.country == area["country"])
    assert all(number.subdivisions == ((area["state"],) if area["state"] else ()) for number in numbers)


def find_number(text: str) -> Number | None:
    try:
        return read_number(text)
    except InvalidNumber:
        return None


@pytest.mark.parametrize(
    ("text", "zones"),
    [
        ("+212612345678", ("Africa/Casablanca",)),
        ("+353851234567", ("Europe/Dublin",)),
        ("+18762345678", ("America/Jamaica",)),
        ("+38344123456", ("Europe/Belgrade",)),
        ("+447400123456", ("Europe/London",)),
        ("+447911123456", ("Europe/Guernsey",)),
        ("+919812345678", ("Asia/Kolkata",)),
        ("+5592991234567", ("America/Manaus",)),
        ("+34612345678", ("Africa/Ceuta", "Atlantic/Canary", "Europe/Madrid")),
        ("+8613812345678", ("Asia/Shanghai",)),
        ("+18505551234", ("America/Chicago", "America/New_York")),
    ],
)
def test_a_number_lies_in_the_zones_of_its_country_and_not_in_those_the_library_lists(text: str, zones: tuple[str, ...]) -> None:
    assert read_number(text).zones == zones


@pytest.mark.parametrize("line", [line for line in READ if line["country"] != "001"], ids=lambda line: line["id"])
def test_every_zone_of_a_number_has_a_clock(line: dict[str, Any]) -> None:
    assert all(map(find_zone, read(line).zones))
    assert read(line).zones


def test_an_area_code_that_nobody_knows_may_be_anywhere_in_its_country() -> None:
    free = read_number("+18002345678")

    assert {"America/New_York", "Pacific/Honolulu"} < set(free.zones)
    assert free.subdivisions == ()
