"""The doctor: nothing to say about a healthy Daybook, and one symptom for each thing that is stuck."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.desk.pause import Scope, pause
from app.ground.db import rows
from app.ledger.doctor import Severity, Symptom, examine, list_brakes
from tests.conftest import World, wipe
from tests.ledger.lived import Lived, live
from tests.making import clock

DAY = timedelta(days=1)
BEAT = "INSERT INTO heartbeat (name, at) VALUES ('beat', %(at)s) ON CONFLICT (name) DO UPDATE SET at = excluded.at"

pytestmark = pytest.mark.usefixtures("lived")


@pytest.fixture(scope="module")
def lived(world: World) -> Iterator[Lived]:
    """Give a ledger with a past; each test sees it unchanged."""
    yield live(world.engine)
    wipe(world)


def examined(session: Session, *, now: datetime | None = None) -> dict[str, Symptom]:
    return {symptom.code: symptom for symptom in examine(session, now=now or clock(session))}


def beat(session: Session) -> None:
    rows(session, BEAT, at=clock(session))


def settle(session: Session) -> None:
    """Take away what the past left to be said."""
    session.execute(text("SET LOCAL daybook.retention = 'on'"))
    rows(session, "UPDATE attempt SET next_check_at = NULL WHERE state = 'unknown'")
    rows(session, "DELETE FROM refused_receipt")
    rows(session, "DELETE FROM inlet")
    beat(session)


def test_a_healthy_daybook_has_no_symptoms(session: Session) -> None:
    settle(session)

    assert examined(session) == {}


def test_what_a_past_leaves_is_said(session: Session) -> None:
    beat(session)

    found = examined(session)

    assert set(found) == {"unknown", "receipts_refused", "inlet_refused"}
    assert (found["unknown"].severity, found["unknown"].count) == (Severity.NOTICE, 1)


def test_doubt_that_grows_old_is_more_than_a_notice(session: Session) -> None:
    beat(session)

    assert examined(session, now=clock(session) + timedelta(minutes=20))["unknown"].severity is Severity.WARNING


def test_silence_of_beat_is_critical_and_comes_first(session: Session) -> None:
    found = examine(session, now=clock(session))

    assert (found[0].code, found[0].severity, found[0].age) == ("beat_silent", Severity.CRITICAL, None)


def test_a_tenant_without_a_policy_is_named(lived: Lived, session: Session) -> None:
    settle(session)
    rows(session, "UPDATE policy_version SET effective_until = %(at)s", at=clock(session) - timedelta(minutes=5))

    symptom = examined(session)["no_policy"]

    assert lived.house.tenant in symptom.words
    assert symptom.age is not None
    assert symptom.age >= timedelta(minutes=5)


def test_a_stopped_route_says_what_it_holds_and_what_to_do(lived: Lived, session: Session) -> None:
    settle(session)
    route = rows(session, "SELECT name FROM route")[0].name
    pause(
        session,
        tenant_id=lived.house.tenant_id,
        scope=Scope(route=route),
        actor="daybook",
        reason="auth_config",
        now=clock(session),
    )
    held = rows(session, "SELECT count(*) AS n FROM outbox")[0].n

    symptom = examined(session)["route_stopped"]

    assert (symptom.severity, symptom.count) == (Severity.CRITICAL, held)
    assert "daybook resume" in symptom.what_to_do


def test_what_a_pause_holds_is_not_called_late(lived: Lived, session: Session) -> None:
    settle(session)
    rows(session, "UPDATE outbox SET due_at = %(at)s", at=clock(session) - timedelta(hours=1))
    late = examined(session)["late"]
    pause(session, tenant_id=lived.house.tenant_id, scope=Scope(lane="urgent"), actor="ann", reason="a storm", now=clock(session))

    found = examined(session)

    assert late.age is not None
    assert late.age >= timedelta(hours=1)
    assert set(found) == {"paused"}
    assert [row.count for row in list_brakes(session, tenant_id=lived.house.tenant_id, now=clock(session))] == [late.count]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE outbox SET lost_lease_count = 1", "leases_lost"),
        ("UPDATE outbox SET due_at = 'infinity'", "parked"),
        (
            """INSERT INTO review (id, tenant_id, event_id, intent_id, attempt_id, cause, opened_at)
               SELECT id, tenant_id, event_id, intent_id, id, 'horizon', created_at FROM attempt LIMIT 1""",
            "reviews_open",
        ),
        (
            "UPDATE attempt SET state = 'prepared', next_check_at = now() - interval '1 minute' WHERE state = 'submitted'",
            "prepared_late",
        ),
        ("UPDATE attempt SET next_check_at = now() - interval '1 hour' WHERE state = 'submitted'", "checks_overdue"),
        (
            "UPDATE receipt SET status = 'waiting', observed_at = NULL, received_at = now() - interval '1 hour'",
            "receipts_waiting",
        ),
        (
            "UPDATE receipt SET status = 'unmatched', observed_at = NULL, received_at = now() - interval '1 hour'",
            "receipts_unmatched",
        ),
        ("UPDATE receipt SET status = 'quarantined', observed_at = NULL", "receipts_quarantined"),
        ("INSERT INTO inlet (tenant, request, created_at) VALUES ('demo', '{}', now() - interval '1 hour')", "inlet_waiting"),
        (
            """INSERT INTO feed_pending (transition_id, intent_id, n, tenant_id, recipient_ref)
               SELECT id, intent_id, n, tenant_id, '' FROM transition""",
            "feed_lag",
        ),
    ],
)
def test_each_thing_that_is_stuck_has_its_symptom(session: Session, statement: str, code: str) -> None:
    settle(session)
    rows(session, statement)

    found = examine(session, now=clock(session) + timedelta(seconds=11))

    assert {symptom.code for symptom in found} - {"beat_silent"} == {code}
    assert all(symptom.count > 0 and symptom.what_to_do for symptom in found)
