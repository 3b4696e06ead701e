"""The vault, addresses and suppressions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography.fernet import Fernet
from psycopg import errors
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.ground.db import rows, run_together, transact
from app.ground.ids import new_id
from app.ledger.surroundings import statements, surroundings_of
from app.people.contacts import InvalidNumber, address_hash, read_number
from app.people.holding import holding_key
from app.people.suppress import suppress
from app.people.vault import VaultDamaged, VaultKeyMissing, new_vault_key, open_vault_key, unwrap, wrap
from policy.words import Channel
from tests.making import ANNA, NOON, count_of, make_house, together


@pytest.mark.usefixtures("world")
def test_what_was_sealed_opens_again_under_its_own_key_only() -> None:
    (anna, wrapped), (ben, _) = new_vault_key(new_id()), new_vault_key(new_id())

    sealed = anna.seal({"sms": ANNA})

    assert open_vault_key(anna.id, wrapped).open(sealed) == {"sms": ANNA}
    assert ANNA.encode() not in sealed
    with pytest.raises(VaultDamaged):
        ben.open(sealed)


@pytest.mark.usefixtures("world")
def test_what_an_older_release_sealed_opens_and_what_is_sealed_now_is_a_quarter_smaller() -> None:
    anna, _ = new_vault_key(new_id())
    before = Fernet(anna.key).encrypt(b'{"sms":"+12015550123"}')

    assert anna.open(before) == anna.open(anna.seal({"sms": ANNA})) == {"sms": "+12015550123"}
    assert len(anna.seal({"sms": ANNA})) * 4 <= len(before) * 3


@pytest.mark.usefixtures("world")
def test_a_destroyed_key_opens_nothing() -> None:
    with pytest.raises(VaultKeyMissing, match="was erased"):
        open_vault_key(new_id(), None)


@pytest.mark.usefixtures("world")
def test_a_wrapped_key_names_the_ring_that_holds_it() -> None:
    ring_id, _, token = wrap(b"secret").partition(b":")

    with pytest.raises(VaultKeyMissing, match="DAYBOOK_KEY_RING"):
        unwrap(b"other:" + token)
    with pytest.raises(VaultDamaged):
        unwrap(ring_id + b":" + token[:-4] + b"AAAA")


@pytest.mark.usefixtures("world")
def test_a_key_says_nothing_about_itself_when_it_is_shown() -> None:
    key, _ = new_vault_key(new_id())

    assert key.key.decode() not in repr(key)


@pytest.mark.parametrize("text", ["2015550124", "+1201555", "seat 12", "+100000000000"])
def test_what_is_no_number_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(InvalidNumber) as refused:
        read_number(text)

    assert text not in str(refused.value)


def test_two_ways_to_write_a_number_are_one_address() -> None:
    assert read_number("+1 (201) 555-0123") == read_number(ANNA)


@pytest.mark.usefixtures("world")
def test_one_address_on_two_channels_has_two_hashes() -> None:
    assert address_hash("sms", ANNA) != address_hash("email", ANNA)


def test_calls_that_match_nobody_share_one_key_a_month(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    first = holding_key(session, tenant_id=tenant_id, now=NOON)
    same = holding_key(session, tenant_id=tenant_id, now=NOON + timedelta(days=30))
    next_month = holding_key(session, tenant_id=tenant_id, now=NOON + timedelta(days=31))

    assert first == same
    assert next_month.id != first.id


def test_racing_calls_share_one_holding_key(fresh_database: Engine) -> None:
    tenant_id = new_id()

    keys = together(*[lambda: transact(lambda tx: holding_key(tx.session, tenant_id=tenant_id, now=NOON))] * 6)

    assert len(set(keys)) == 1
    with Session(fresh_database) as session:
        assert count_of(session, "person_key") == 1


def standing_of(session: Session, tenant_id: object, digest: bytes) -> list[str | None]:
    around = surroundings_of(session, run_together(session, statements([tenant_id], [(tenant_id, digest)], now=NOON)))  # type: ignore[list-item]
    return [each.category for each in around.suppressions_of((tenant_id, digest), channel="sms")]  # type: ignore[arg-type]


def test_a_suppression_marks_the_gate_and_stands(session: Session) -> None:
    house, digest = make_house(session), address_hash(Channel.SMS, ANNA).digest

    suppress(
        session,
        tenant_id=house.tenant_id,
        channel="sms",
        address_hash=digest,
        source="keyword",
        cause_id=None,
        category="marketing",
        now=NOON,
    )

    assert standing_of(session, house.tenant_id, digest) == ["marketing"]
    assert rows(session, "SELECT suppressed_at FROM gate")[0].suppressed_at == NOON


def test_a_suppression_is_kept_for_good(session: Session) -> None:
    house, digest = make_house(session), address_hash(Channel.SMS, ANNA).digest
    suppress(session, tenant_id=house.tenant_id, channel="sms", address_hash=digest, source="api", cause_id=None, now=NOON)

    with pytest.raises(errors.RestrictViolation):
        rows(session, "DELETE FROM suppression")
