"""The brake: what it holds, and that both the pulling and the letting go are written down."""

from __future__ import annotations

import pytest
from sqlalchemy.orm import Session

from app.desk.pause import NoSuchRoute, Scope, pause, resume, running_pauses
from app.ground.db import rows
from tests.making import NOON, make_house


@pytest.mark.parametrize("scope", [Scope(), Scope(lane="urgent"), Scope(category="marketing")])
def test_a_pause_ends_by_exactly_its_own_scope(session: Session, scope: Scope) -> None:
    house = make_house(session)
    pause(session, tenant_id=house.tenant_id, scope=scope, actor="ann", reason="why", now=NOON)

    other = resume(session, tenant_id=house.tenant_id, scope=Scope(lane="bulk"), actor="ben", reason="so", now=NOON)
    ended = resume(session, tenant_id=house.tenant_id, scope=scope, actor="ben", reason="so", now=NOON)

    assert (other, ended, running_pauses(session, tenant_id=house.tenant_id)) == (0, 1, [])


def test_pausing_and_resuming_are_operator_actions(session: Session) -> None:
    house = make_house(session)
    pause(session, tenant_id=house.tenant_id, scope=Scope(lane="bulk"), actor="ann", reason="why", now=NOON)
    resume(session, tenant_id=house.tenant_id, scope=Scope(lane="bulk"), actor="ben", reason="so", now=NOON)

    found = rows(session, "SELECT actor, verb, reason, subject ->> 'lane' AS lane FROM operator_action ORDER BY id")
    assert [tuple(row) for row in found] == [("ann", "pause", "why", "bulk"), ("ben", "resume", "so", "bulk")]


def test_resuming_what_is_not_paused_is_no_action(session: Session) -> None:
    house = make_house(session)

    assert resume(session, tenant_id=house.tenant_id, scope=Scope(), actor="ben", reason="so", now=NOON) == 0
    assert rows(session, "SELECT 1 FROM operator_action") == []


def test_another_tenants_pause_is_not_ended(session: Session) -> None:
    ours, theirs = make_house(session), make_house(session)
    pause(session, tenant_id=theirs.tenant_id, scope=Scope(), actor="ann", reason="why", now=NOON)

    assert resume(session, tenant_id=ours.tenant_id, scope=Scope(), actor="ben", reason="so", now=NOON) == 0


def test_a_route_that_is_not_there_cannot_be_paused(session: Session) -> None:
    house = make_house(session)

    with pytest.raises(NoSuchRoute, match="no route named 'gone'"):
        pause(session, tenant_id=house.tenant_id, scope=Scope(route="gone"), actor="ann", reason="why", now=NOON)
