"""`daybook receipt replay`: page by page, and what it says of it."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import Engine

from app.desk import replay
from app.ground.db import rows
from app.ledger.receipts import keep_refused
from app.ledger.routes import read_routes
from tests.cli.conftest import Run
from tests.flows.test_receipts import call
from tests.making import clock, committing, count_of, make_house


def test_a_route_is_replayed_page_by_page(daybook: Run, fresh_database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "PAGE", 2)
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        route = read_routes(session, [house.route_id])[house.route_id]
        calls = [call(house, sid=f"SM{n}") for n in range(4)] + [call(house, sid="SM9", secret="a stranger's")]
        for each in calls:
            keep_refused(session, route, each, cause="not_authentic", now=now)
        name = rows(session, "SELECT name FROM route")[0].name
    asked = ("receipt", "replay", name, "--tenant", house.tenant, "--reason", "the ring lacked a key")

    told, again = daybook(*asked), daybook(*asked, "--json")
    unknown = daybook("receipt", "replay", "nowhere", "--tenant", house.tenant, "--reason", "x")

    assert (told.exit_code, told.output) == (1, "kept: 4 (4 unmatched)\nstill refused: 1\n")
    assert json.loads(again.output) == {"kept": {}, "refused": 1, "unopened": 0}
    assert (unknown.exit_code, "no route named 'nowhere'" in unknown.output) == (2, True)
    with committing(fresh_database) as session:
        assert (count_of(session, "receipt"), count_of(session, "operator_action")) == (4, 2)
