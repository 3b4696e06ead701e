"""What is written can be read again, and two different things are never written alike."""

from __future__ import annotations

from urllib.parse import unquote
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.ground.keys import attempt_key, new_api_key, read_api_key
from app.ledger.feed import UnknownCursor, read_cursor
from app.ledger.request import NewEvent, read_key, read_request
from app.people.vault import new_vault_key, open_vault_key
from tests.making import ask

BIGINTS = st.integers(0, 2**63 - 1)
PRINTABLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40)
PARTS = st.text(st.characters(min_codepoint=0x20, exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
pytestmark = pytest.mark.usefixtures("world")


@given(BIGINTS, BIGINTS)
def test_a_cursor_that_was_given_is_read_as_its_position(epoch: int, position: int) -> None:
    assert read_cursor(f"{epoch}.{position}", epoch=epoch) == position


@given(BIGINTS, BIGINTS, BIGINTS)
def test_a_cursor_of_another_epoch_is_never_followed(epoch: int, other: int, position: int) -> None:
    assume(epoch != other)

    with pytest.raises(UnknownCursor):
        read_cursor(f"{other}.{position}", epoch=epoch)


@given(st.text(max_size=60))
def test_any_text_is_a_cursor_or_refused_as_none(text: str) -> None:
    try:
        position = read_cursor(text, epoch=1)
    except UnknownCursor:
        return

    assert f"1.{position}" == text.removeprefix("0") or int(text.partition(".")[2]) == position


@given(st.uuids(), st.uuids())
def test_attempt_keys_are_stable_distinct_and_safe_in_a_url(one: UUID, other: UUID) -> None:
    assert attempt_key(one) == attempt_key(one)
    assert (attempt_key(one) == attempt_key(other)) == (one == other)
    assert attempt_key(one).replace("-", "").replace("_", "").isalnum()
    assert len(attempt_key(one)) == 43


@given(st.uuids())
def test_an_api_key_is_read_as_its_id_and_the_hash_that_is_kept(key_id: UUID) -> None:
    key = new_api_key(key_id)

    assert read_api_key(key.text) == (key.id, key.secret_hash)
    assert key.text not in repr(key)


@given(st.text(max_size=80))
def test_any_text_is_an_api_key_or_none(text: str) -> None:
    assert read_api_key(text) is None or text.startswith("dbk_")


@given(PRINTABLE)
def test_a_callers_key_is_itself_with_and_without_quotes(key: str) -> None:
    assume(not (len(key) > 1 and key[0] == key[-1] == '"'))

    assert read_key(key) == read_key(f'"{key}"') == key


@given(st.text(max_size=300))
def test_a_callers_key_is_printable_and_of_a_bounded_length_or_none(text: str) -> None:
    key = read_key(text)

    assert key is None or (1 <= len(key) <= 255 and key.isascii() and key.isprintable())


@given(st.tuples(PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS))
def test_business_keys_are_alike_for_the_same_parts_only(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (business_key(*one) == business_key(*other)) == (one == other)


@given(st.tuples(PARTS, PARTS, PARTS))
def test_a_business_key_gives_its_parts_back(parts: tuple[str, ...]) -> None:
    assert tuple(unquote(part) for part in business_key(*parts).split("/")) == parts


def business_key(event_type: str, subject: str, ref: str) -> str:
    read = read_request(ask(type=event_type, subject=subject, ref=ref))
    assert isinstance(read, NewEvent), read
    return read.business_key


@given(
    st.uuids(),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
        max_leaves=5,
    ),
)
def test_what_is_sealed_opens_as_it_was(key_id: UUID, value: object) -> None:
    key, wrapped = new_vault_key(key_id)

    assert open_vault_key(key_id, wrapped).open(key.seal(value)) == value


@given(
    st.dictionaries(st.text(max_size=10), st.none() | st.integers() | st.text(max_size=10) | st.lists(st.integers(), max_size=2))
)
def test_any_object_is_a_request_or_a_list_of_problems_with_places(raw: dict[str, object]) -> None:
    read = read_request({**ask(), **raw})

    assert isinstance(read, NewEvent) or all(problem.code and problem.detail for problem in read)
