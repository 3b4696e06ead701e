"""What was told of people is audited: addresses in clear, acts that hang on somebody else's address, guards that are gone."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ledger.audit import audit
from app.people.consents import NewConsent, record_consents
from app.people.contacts import read_number
from app.people.persons import Addressee
from app.people.preferences import NewPreference, record_preferences
from app.people.recipients import NewRecipient, put_recipient
from tests.making import ANNA, BEN, clock, make_house

ACTOR: Final = "key:test"
HOUR: Final = timedelta(hours=1)


@pytest.fixture
def told(session: Session) -> UUID:
    """Give a tenant that told something of two people."""
    now, tenant_id = clock(session), make_house(session).tenant_id
    anna, ben = Addressee("m-1", "sms", read_number(ANNA)), Addressee("m-2", "sms", read_number(BEN))
    grants = [NewConsent(each, "marketing", "grant", "express", now, None, "w-1", "form") for each in (anna, ben)]
    put_recipient(session, NewRecipient("m-1", read_number(ANNA)), tenant_id=tenant_id, actor=ACTOR, now=now)
    record_consents(session, grants, tenant_id=tenant_id, actor=ACTOR, now=now)
    record_preferences(session, [NewPreference(anna, None, False, now)], tenant_id=tenant_id, actor=ACTOR, now=now)
    return tenant_id


def found(session: Session, *, since_hours: int | None = None) -> set[str]:
    """Name what an audit finds: of everything, or of what is newer than some hours."""
    since = None if since_hours is None else clock(session) - since_hours * HOUR
    return {breach.code for breach in audit(session, since=since, full=since is None, now=clock(session))}


@pytest.fixture
def plant(session: Session) -> Callable[[str], None]:
    """Write what no code of ours would, past the guards."""

    def write(statement: str) -> None:
        session.execute(text("SET LOCAL daybook.retention = 'on'"))
        rows(session, statement)

    return write


@pytest.mark.usefixtures("told")
def test_what_was_told_through_the_verbs_is_clean(session: Session) -> None:
    assert found(session) == set()


OTHERS: Final = "(SELECT id FROM contact WHERE recipient_ref = 'm-2')"


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("statement", "code"),
    [
        (f"UPDATE consent SET contact_id = {OTHERS} WHERE recipient_ref = 'm-1'", "adrift_consent"),
        ("UPDATE consent SET address_hash = '\\x00' WHERE recipient_ref = 'm-1'", "adrift_consent"),
        ("UPDATE preference SET contact_id = gen_random_uuid()", "adrift_preference"),
        (f"UPDATE recipient SET contacts = jsonb_build_object('sms', {OTHERS})", "adrift_recipient"),
        ("UPDATE consent SET source = '+12015550123'", "personal_in_consent"),
        ("UPDATE preference SET recipient_ref = 'anna@example.com'", "personal_in_preference"),
        ('UPDATE recipient SET contacts = contacts || \'{"address": "+12015550123"}\'', "personal_in_recipient"),
        ("ALTER TABLE consent DISABLE TRIGGER keep_rows", "guard_missing"),
    ],
)
def test_a_breach_is_named_also_by_an_audit_of_what_is_new(
    session: Session, plant: Callable[[str], None], statement: str, code: str
) -> None:
    plant(statement)

    assert code in found(session)
    assert code in found(session, since_hours=1)
