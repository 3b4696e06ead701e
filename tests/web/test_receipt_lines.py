"""The fixtures' receipt calls through HTTP: who is believed, and what the ledger makes of it."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, add_route
from app.ground.db import rows
from app.people.contacts import address_hash
from policy.states import AttemptState
from tests import making
from tests.carriers.test_receipt_fixtures import LINES, Line, class_of, route_of, state_of, time_of

GROUPS = [list(group) for _, group in groupby(LINES.values(), key=lambda line: line.get("group", line["id"]))]


def make_route_of(session: Session, house: making.House, line: Line) -> making.House:
    """Give the house the route that the fixture's URL and secrets belong to."""
    settings = route_of(line)
    route = NewRoute(
        name=f"fixture-{line['id']}",
        carrier=line["carrier"],
        sender=making.SENDER,
        settings=settings.settings,
        credentials=settings.credentials,
        receipt_url=settings.receipt_url,
        priority=1,
    )
    route_id = add_route(session, tenant_id=house.tenant_id, route=route, public_url="", now=making.NOON)
    return making.House(house.tenant_id, house.tenant, route_id, settings.receipt_url)


def make_known_attempt(session: Session, house: making.House, key: str) -> making.Standing:
    """Hand off an attempt under the fixture's key, to the fixture's recipient."""
    standing = making.make_prepared(session, house, subject=key)
    rows(session, "UPDATE attempt SET attempt_key = %(key)s WHERE id = %(id)s", key=key, id=standing.attempt_id)
    theirs = address_hash("sms", making.CLARE).digest
    rows(session, "UPDATE intent SET gate_hash = %(hash)s WHERE id = %(id)s", hash=theirs, id=standing.intent_id)
    return standing


def call(client: FlaskClient, house: making.House, line: Line) -> int:
    """Call our receipt URL as the carrier did."""
    response = client.open(
        f"/v1/receipts/{house.route_id}",
        method=line["method"],
        query_string=line["url"].partition("?")[2],
        headers=line["headers"],
        content_type=line["content_type"],
        data=line["body"],
    )
    return response.status_code


def observations(session: Session, standing: making.Standing) -> list[Any]:
    return rows(session, "SELECT * FROM observation WHERE attempt_id = %(id)s ORDER BY id", id=standing.attempt_id)


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0]["id"])
def test_a_call_of_the_fixtures_does_to_its_attempt_what_they_say(
    client: FlaskClient, fresh_database: Engine, group: list[Line]
) -> None:
    with Session(fresh_database, expire_on_commit=False) as session:
        house = make_route_of(session, making.make_house(session), group[0])
        standing = make_known_attempt(session, house, group[0]["expect"].get("attempt_key", "att-nobody"))
        session.commit()

        statuses = [call(client, house, line) for line in group]

        assert statuses == [403 if line["expect"].get("verdict") == "reject" else 200 for line in group]
        assert_told(session, standing, group)


def assert_told(session: Session, standing: making.Standing, group: list[Line]) -> None:
    """See that the ledger holds what these lines say, each once, and nothing else."""
    told = [line for line in group if "verdict" not in line["expect"] and line["expect"].get("dedupe") != "duplicate"]
    seen = [(o.state, o.error_class, o.error_code, o.remote_id, o.source_at) for o in observations(session, standing)]
    assert seen == [
        (state_of(line), class_of(line), line["expect"].get("error_code"), line["expect"]["remote_id"], time_of(line))
        for line in told
        if line["id"] not in REPEATED
    ]
    after = next((line["expect"]["after"] for line in reversed(group) if "after" in line["expect"]), None)
    expected = after or (state_of(told[-1]) if told else AttemptState.PREPARED)
    assert making.attempt_of(session, standing).state == expected


# Kannel repeats a call to the octet; the fixtures do not name it a duplicate, since it bears no id of its own.
REPEATED = frozenset({"kn-03"})
