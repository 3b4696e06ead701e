"""Keywords: every fixture, and the words that look like one and are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.keywords import EVERYTHING, HELP, OPT_IN, OPT_OUT, Match, Scope, Tier, Word, match, plain
from policy.words import SuppressedBy

LINES: Final = (Path(__file__).parent.parent / "fixtures" / "optout_keywords.jsonl").read_text().splitlines()
FIXTURES: Final[list[dict[str, Any]]] = [json.loads(line) for line in LINES]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda each: each["id"])
def test_a_text_is_read_as_its_fixture_says(fixture: dict[str, Any]) -> None:
    awaiting = fixture["context"] == {"awaiting": "opt_in"}

    read = match(fixture["text"], awaiting_opt_in=awaiting)

    assert (read.word, read.tier, read.review, read.scope) == tuple(
        fixture[name] for name in ("expect", "tier", "review", "scope")
    )


@pytest.mark.parametrize(
    "text",
    [
        "SHOP",
        "STEP",
        "POST",
        "SPOT",
        "TOP",
        "STOPS HERE",
        "subscribe",
        "resubscribe",
        "weekend",
        "start please",
        "yes please",
        "",
        " ",
    ],
)
def test_what_only_looks_like_a_keyword_is_none(text: str) -> None:
    """SUBSCRIBE is two letters away from UNSUBSCRIBE, and means the opposite."""
    assert match(text).word is Word.NONE


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("please STOP", Scope.SENDER),
        ("stop, por favor", Scope.SENDER),
        ("START STOP", Scope.SENDER),
        ("STOP ALL now", Scope.ALL),
        ("s.t.o.p. please", Scope.SENDER),
        ("unsubcribe", Scope.SENDER),
        ("unsubscrieb me?", None),
        ("STOP\n> Reply STOP to unsubscribe", Scope.SENDER),
        ("Do not ever text me again", Scope.SENDER),
        ("You have the wrong number, stop", Scope.ALL),
    ],
)
def test_who_wants_out_gets_out(text: str, scope: Scope | None) -> None:
    assert match(text).scope is scope


@pytest.mark.parametrize(
    "text", ["You can't stop texting me, I love it", "This is not the wrong number", "Don\u00b4t stop sending these"]
)
def test_what_is_negated_is_none(text: str) -> None:
    assert match(text).word is Word.NONE


@pytest.mark.parametrize("text", ["how do I opt out of this", "I want this to stop", "can you quit it"])
def test_an_opt_out_word_that_no_rule_reads_is_for_a_person(text: str) -> None:
    assert match(text) == Match(Word.NONE, review=True)


@pytest.mark.parametrize("text", ["Reacted 👍 to “Reply STOP to unsubscribe”", "Removed a like from “STOP”", 'Loved "STOP"'])
def test_a_reaction_quotes_us(text: str) -> None:
    assert match(text) == Match(Word.NONE)


def test_a_wrong_number_is_kept_as_one() -> None:
    assert match("Wrong number").source is SuppressedBy.WRONG_NUMBER
    assert match("STOPALL") == Match(Word.OPT_OUT, Tier.KEYWORD, Scope.ALL)


def test_no_word_has_two_meanings() -> None:
    assert not OPT_OUT & (OPT_IN | HELP)
    assert EVERYTHING < OPT_OUT


@given(st.text(max_size=60))
def test_any_text_is_read_and_folding_twice_is_folding_once(text: str) -> None:
    match(text)

    assert plain(plain(text)) == plain(text)
