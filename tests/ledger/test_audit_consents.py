"""Audit of consent: a handoff on what had been taken back is named, a race and another's withdrawal are not."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit import audit
from app.people.consents import NewConsent, record_consents
from app.people.contacts import read_number
from app.people.persons import Addressee
from tests.making import ANNA, BEN, NOON, House, make_house, make_prepared, sample

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
LATER = NOON + 10 * MINUTE


def say(session: Session, house: House, act: str, *, sms: str = ANNA, **changes: Any) -> None:
    """Tell of one act, at noon unless it is said when."""
    told = {"category": None, "kind": "express", "captured_at": NOON, "at": NOON} | changes
    new = NewConsent(
        about=Addressee("m-1", "sms", read_number(sms)),
        category=told["category"],
        act=act,
        kind=told["kind"],
        captured_at=told["captured_at"],
        expires_at=None,
        wording=None,
        source="form",
    )
    record_consents(session, [new], tenant_id=house.tenant_id, actor="key:test", now=told["at"])


def contacted(session: Session, **changes: Any) -> House:
    """Contact somebody who had agreed, ten minutes later."""
    house = make_house(session, policy=sample(consent=["express"], **changes))
    say(session, house, "grant")
    make_prepared(session, house, now=LATER)
    return house


def recorded(session: Session, seconds: int) -> None:
    """Have it that withdrawals were recorded so many seconds after the grant, whatever the gate knew."""
    session.execute(text("SET LOCAL daybook.retention = 'on'"))
    at = NOON + seconds * SECOND
    rows(session, "UPDATE consent SET recorded_at = %(at)s, captured_at = %(at)s WHERE act = 'withdraw'", at=at)


def named(session: Session, *, full: bool = True) -> list[dict[str, str]]:
    found = audit(session, since=None if full else LATER, full=full, now=LATER + MINUTE)
    return [dict(row) for breach in found if breach.code == "after_withdrawal" for row in breach.rows]


@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("changes", [{}, {"kind": None}, {"category": "transactional"}])
def test_a_handoff_on_a_consent_that_had_been_withdrawn_is_named(session: Session, changes: dict[str, Any], full: bool) -> None:  # noqa: FBT001 - a case
    house = contacted(session)
    say(session, house, "withdraw", at=LATER, **changes)

    recorded(session, seconds=9 * 60 - 1)

    ids = rows(session, "SELECT a.id AS a, w.id AS w FROM attempt a, consent w WHERE w.act = 'withdraw'")[0]
    assert named(session, full=full) == [{"attempt_id": str(ids.a), "withdrawal_id": str(ids.w)}]


def test_a_withdrawal_after_the_handoff_is_none_of_its_business(session: Session) -> None:
    say(session, contacted(session), "withdraw", at=LATER + MINUTE, captured_at=NOON)

    assert named(session) == []


def test_a_withdrawal_that_raced_and_lost_is_no_breach(session: Session) -> None:
    """It may have begun before `prepared`, and have waited for the gate."""
    house = contacted(session)
    say(session, house, "withdraw", at=LATER)

    recorded(session, seconds=9 * 60)

    assert named(session) == []


@pytest.mark.parametrize("changes", [{"kind": "night"}, {"category": "marketing"}, {"sms": BEN}])
def test_a_withdrawal_of_something_else_is_no_breach(session: Session, changes: dict[str, Any]) -> None:
    house = contacted(session)
    say(session, house, "withdraw", at=LATER, **changes)

    recorded(session, seconds=60)

    assert named(session) == []


def test_a_withdrawal_before_the_consent_that_counted_is_no_breach(session: Session) -> None:
    house = contacted(session)
    say(session, house, "withdraw", at=LATER)

    recorded(session, seconds=-60)

    assert named(session) == []


def test_where_the_acceptance_counts_a_later_withdrawal_is_no_breach(session: Session) -> None:
    house = contacted(session, basis="acceptance")
    say(session, house, "withdraw", at=LATER)

    recorded(session, seconds=60)

    assert named(session) == []


def test_where_no_consent_is_needed_none_is_missed(session: Session) -> None:
    house = make_house(session)
    say(session, house, "grant")
    make_prepared(session, house, now=LATER)
    say(session, house, "withdraw", at=LATER)

    recorded(session, seconds=60)

    assert named(session) == []
