"""`daybook reconcile`: what each view holds, and the rows of one."""

from __future__ import annotations

import json

from sqlalchemy import Engine

from app.ledger.reconciliation import View
from tests.cli.conftest import Run
from tests.making import clock, committing, make_event, make_house, make_queued


def test_the_views_are_counted_and_one_is_shown(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house, quiet = make_house(session, now=now), make_house(session, now=now)
        make_queued(session, house, now=now)
        joined = make_event(session, house, key="k-2", stake={"count": 2, "unit": "seat"}, now=now)
    mine = ("--tenant", house.tenant)

    counted, healthy = daybook("reconcile", *mine, "--json"), daybook("reconcile", "--tenant", quiet.tenant)
    shown, rows = daybook("reconcile", "joined", *mine), json.loads(daybook("reconcile", "joined", *mine, "--json").output)

    assert {v["view"]: v["count"] for v in json.loads(counted.output)["views"]} == dict.fromkeys(View, 0) | {"joined": 1}
    assert (counted.exit_code, healthy.exit_code, shown.exit_code) == (1, 0, 1)
    assert all(view in healthy.output for view in View)
    assert (str(joined.event_id) in shown.output, "2 seat" in shown.output) == (True, True)
    assert [row["event_id"] for row in rows["rows"]] == [str(joined.event_id)]
