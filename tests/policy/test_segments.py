from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.segments import GSM_7_BASIC, GSM_7_EXTENSION, Encoding, count

LINES = (Path(__file__).parents[1] / "fixtures" / "segments.jsonl").read_text(encoding="utf-8").splitlines()
FIXTURES: list[dict[str, Any]] = [json.loads(line) for line in LINES]

gsm_7_texts = st.text(st.sampled_from(sorted(GSM_7_BASIC | GSM_7_EXTENSION)), max_size=500)
texts = st.text(max_size=400) | gsm_7_texts


@pytest.mark.parametrize("line", FIXTURES, ids=lambda line: line["id"])
def test_a_text_takes_as_many_parts_as_the_fixture_says(line: dict[str, Any]) -> None:
    counted = count(line["text"])

    assert counted.encoding == line["encoding"]
    assert counted.units == line["units"]
    assert counted.segments == line["segments"]
    assert list(counted.units_per_segment) == line["units_per_segment"]


def test_the_default_alphabet_has_127_characters_and_an_escape() -> None:
    assert len(GSM_7_BASIC) == 127
    assert len(GSM_7_EXTENSION) == 10
    assert not GSM_7_BASIC & GSM_7_EXTENSION


@given(texts)
def test_no_unit_is_lost_between_the_parts(text: str) -> None:
    counted = count(text)

    assert sum(counted.units_per_segment) == counted.units
    assert len(counted.units_per_segment) == counted.segments


@given(st.text(max_size=400))
def test_units_of_ucs_2_are_those_of_utf_16(text: str) -> None:
    counted = count(text + "’")  # noqa: RUF001  # one such apostrophe moves the whole text to UCS-2

    assert counted.encoding is Encoding.UCS_2
    assert counted.units * 2 == len((text + "’").encode("utf-16-le"))  # noqa: RUF001


@given(gsm_7_texts)
def test_gsm_7_parts_hold_at_most_153_septets_and_leave_at_most_one_free(text: str) -> None:
    """Only a pair that would straddle leaves a septet free, so every part but the last holds 152 or 153."""
    counted = count(text)

    assert counted.segments == 1 or set(counted.units_per_segment[:-1]) <= {152, 153}
    assert counted.segments > 1 or counted.units <= 160
