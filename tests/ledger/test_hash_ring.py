"""A newer key in front of the hash ring changes nothing for people and events that are in the books."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from app.ground.config import settings
from app.ledger.view import EventView
from app.people.suppress import suppress
from local.state import new_ring
from tests import making


@pytest.fixture
def rotated(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Let a test put a newer key in front; afterwards the ring is as it was."""
    with monkeypatch.context() as patched:
        yield patched
    settings.cache_clear()


def rotate(patched: pytest.MonkeyPatch) -> None:
    old = ",".join(f"{key_id}:{encoded}" for key_id, encoded in _ring())
    patched.setenv("DAYBOOK_HASH_RING", f"newer:{new_ring().partition(':')[2]},{old}")
    settings.cache_clear()


def _ring() -> list[tuple[str, str]]:
    return [(key_id, base64.urlsafe_b64encode(secret).decode()) for key_id, secret in settings().hash_ring]


def test_a_repeated_event_is_known_under_a_newer_key(session: Session, rotated: pytest.MonkeyPatch) -> None:
    house = making.make_house(session)
    making.make_event(session, house)
    rotate(rotated)

    again = making.accept_all(session, house, making.ask())[0]

    assert isinstance(again, EventView)
    assert again.duplicate


def test_a_suppression_is_found_under_a_newer_key(session: Session, rotated: pytest.MonkeyPatch) -> None:
    house = making.make_house(session)
    first = making.make_queued(session, house)
    gate = bytes(making.intent_of(session, first).gate_hash)
    suppress(
        session, tenant_id=house.tenant_id, channel="sms", address_hash=gate, source="operator", cause_id=None, now=making.NOON
    )
    rotate(rotated)

    later = making.make_queued(session, house, subject="c-2")

    assert making.intent_of(session, later).state == "suppressed"


def test_a_queued_text_is_still_the_accepted_one_under_a_newer_key(session: Session, rotated: pytest.MonkeyPatch) -> None:
    house = making.make_house(session)
    queued = making.make_queued(session, house)
    rotate(rotated)

    prepared = making.prepared_of(session, queued)

    assert prepared.handoff is not None
