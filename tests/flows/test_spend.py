"""Spend: no more than the cap of a day, a breaker that pauses a route in one country, and counts that agree with the prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.pause import Scope, pause, resume, running_pauses
from app.flows.dispatch import dispatch
from app.flows.handoff import hand_off
from app.ground.db import rows
from app.ledger.audit import audit
from app.ledger.doctor import examine
from policy.spending import next_day
from policy.words import Lane
from simulator.transport import SimulatorTransport
from tests.making import (
    House,
    Standing,
    attempt_of,
    beside,
    carriers_of,
    clock,
    committing,
    intent_of,
    make_house,
    make_queued,
    outbox_of,
    sample,
    simulated,
    transitions_of,
    wait_until_blocked,
)

CANADIAN: Final = "+14165550123"
PRICES: Final = {"prices": {"currency": "USD", "sms": {"US": "0.10", "CA": "0.25"}}}
"""A tenth of a dollar in the United States; a quarter in Canada."""
EVERYWHERE: Final = {"countries": {"allowed": "all", "blocked": []}}


@dataclass(frozen=True, slots=True)
class Town:
    """A tenant whose versions cap what it spends, and a carrier."""

    engine: Engine
    house: House
    transport: SimulatorTransport

    def post(self, count: int, *, sms: str = "", subject: str = "c") -> list[Standing]:
        """Accept events for people of their own, or all for one number."""
        with committing(self.engine) as session:
            now = clock(session)
            return [
                make_queued(
                    session, self.house, now=now, subject=f"{subject}-{n}", ref=f"{subject}{n}", sms=sms or f"+120155501{n:02}"
                )
                for n in range(count)
            ]

    def run(self, times: int = 3) -> None:
        """Dispatch and hand off, a few times over."""
        for _ in range(times):
            for page in dispatch(Lane.URGENT):
                hand_off(
                    page.attempt_ids,
                    route_id=page.route_id,
                    lease=page.lease,
                    terms=page.terms,
                    carrier_of=carriers_of(self.transport),
                )

    @property
    def sent(self) -> int:
        """Count what the carrier took."""
        return len(self.transport.book.messages)

    def states(self, standings: Sequence[Standing]) -> Counter[tuple[str, str | None]]:
        """Count how the texts stand."""
        with Session(self.engine) as session:
            return Counter((attempt_of(session, s).state, intent_of(session, s).reason) for s in standings)

    def counted(self) -> list[tuple[str, Decimal, int]]:
        """Read what was counted, by country."""
        with Session(self.engine) as session:
            found = rows(session, "SELECT country, sum(amount) AS sum, sum(attempt_count) AS n FROM spend GROUP BY 1 ORDER BY 1")
        return [(row.country, row.sum, int(row.n)) for row in found]

    def breaches(self) -> list[str]:
        """Audit everything."""
        with Session(self.engine) as session:
            return [breach.code for breach in audit(session, since=None, full=True, now=clock(session))]


def town_of(engine: Engine, **caps: Any) -> Town:
    with committing(engine) as session:
        policy = sample(cooldown="0s", hours=None) | PRICES | EVERYWHERE | caps
        return Town(engine, make_house(session, policy=policy, rate=500, now=clock(session)), simulated())


def test_no_more_is_spent_on_a_day_than_the_cap_and_the_rest_waits_for_the_next(fresh_database: Engine) -> None:
    town = town_of(fresh_database, spend={"per_day": "0.50"})
    standings = town.post(8)

    town.run()

    assert town.sent == 5
    assert town.counted() == [("US", Decimal("0.50"), 5)]
    assert town.states(standings) == {("submitted", None): 5, ("queued", "spend_cap"): 3}
    waiting = next(s for s in standings if standing_is(town, s, "queued"))
    with Session(fresh_database) as session:
        due = outbox_of(session, waiting).due_at
        assert transitions_of(session, waiting)[-1] == ("queued", "deferred", "spend_cap")
        assert due == next_day(clock(session))
    assert town.breaches() == []


def standing_is(town: Town, standing: Standing, state: str) -> bool:
    with Session(town.engine) as session:
        return bool(attempt_of(session, standing).state == state)


def test_what_is_accepted_over_the_cap_waits_from_the_beginning(fresh_database: Engine) -> None:
    town = town_of(fresh_database, spend={"per_day": "0.10"})
    town.post(1, subject="first")
    town.run()

    (late,) = town.post(1, subject="late")

    assert town.states([late]) == {("queued", "spend_cap"): 1}


def test_two_windows_side_by_side_do_not_both_fit_under_the_cap(fresh_database: Engine) -> None:
    town = town_of(fresh_database, spend={"per_day": "1.00"})
    town.post(16)
    (page,) = dispatch(Lane.URGENT)
    halves = page.attempt_ids[:8], page.attempt_ids[8:]

    def send(ids: Any) -> None:
        hand_off(ids, route_id=page.route_id, lease=page.lease, terms=page.terms, carrier_of=carriers_of(town.transport))

    with Session(fresh_database) as session:
        rows(session, "SELECT 1 FROM tenant FOR NO KEY UPDATE")
        with beside(lambda: send(halves[0]), lambda: send(halves[1])):
            wait_until_blocked(fresh_database, 2)
            session.rollback()

    assert town.sent == 10
    assert town.counted() == [("US", Decimal("1.00"), 10)]


def test_an_hour_that_is_too_dear_in_one_country_pauses_the_route_there_and_says_so(fresh_database: Engine) -> None:
    town = town_of(fresh_database, breaker={"per_hour": "0.60"})
    canadian, american = town.post(5, sms=CANADIAN, subject="ca"), town.post(3, subject="us")

    town.run()

    assert town.states(american) == {("submitted", None): 3}
    assert town.states(canadian) == {("submitted", None): 2, ("queued", None): 3}
    with Session(fresh_database) as session:
        (held,) = running_pauses(session, tenant_id=town.house.tenant_id)
        assert (held.country, held.cause, held.started_by) == ("CA", "spend_breaker", "daybook")
        symptoms = {s.code: s for s in examine(session, now=clock(session))}
    assert "country CA" in symptoms["breaker_tripped"].words
    assert "rows held: 3" in symptoms["breaker_tripped"].words
    assert "paused" not in symptoms
    assert town.breaches() == []


def test_an_operator_who_resumes_gives_the_hour_another_measure(fresh_database: Engine) -> None:
    town = town_of(fresh_database, breaker={"per_hour": "0.60"})
    canadian = town.post(5, sms=CANADIAN, subject="ca")
    town.run()

    resume_in(town, "CA")
    town.run()

    assert town.states(canadian) == {("submitted", None): 4, ("queued", None): 1}
    resume_in(town, "CA")
    town.run()
    assert town.states(canadian) == {("submitted", None): 5}
    assert town.counted() == [("CA", Decimal("1.25"), 5)]


def resume_in(town: Town, country: str) -> None:
    with committing(town.engine) as session:
        (held,) = running_pauses(session, tenant_id=town.house.tenant_id)
        scope = Scope(route=held.route, country=country)
        ended = resume(session, tenant_id=town.house.tenant_id, scope=scope, actor="ann", reason="a campaign", now=clock(session))
    assert ended == 1


def test_a_country_that_an_operator_pauses_is_held_on_all_routes_and_nobody_elses(fresh_database: Engine) -> None:
    town = town_of(fresh_database)
    canadian, american = town.post(1, sms=CANADIAN, subject="ca"), town.post(1, subject="us")
    (page,) = dispatch(Lane.URGENT)
    with committing(fresh_database) as session:
        scope = Scope(country="CA")
        pause(session, tenant_id=town.house.tenant_id, scope=scope, actor="ann", reason="a fault there", now=clock(session))

    hand_off(page.attempt_ids, route_id=page.route_id, lease=page.lease, carrier_of=carriers_of(town.transport))
    town.run()

    assert town.states(canadian) == {("queued", None): 1}
    assert town.states(american) == {("submitted", None): 1}


def test_without_a_cap_nothing_is_counted_and_nobody_is_locked(fresh_database: Engine) -> None:
    town = town_of(fresh_database)
    town.post(2)

    with Session(fresh_database) as session:
        rows(session, "SELECT 1 FROM tenant FOR UPDATE")
        town.run()

    assert (town.sent, town.counted()) == (2, [])


@pytest.mark.parametrize(
    "wrong",
    [
        "UPDATE spend SET amount = amount - 0.10",
        "UPDATE spend SET attempt_count = attempt_count + 1",
        "DELETE FROM spend",
        "UPDATE spend SET country = 'CA'",
    ],
)
def test_a_count_that_is_not_what_was_prepared_is_named(fresh_database: Engine, wrong: str) -> None:
    town = town_of(fresh_database, spend={"per_day": "5.00"})
    town.post(2)
    town.run()

    with committing(fresh_database) as session:
        rows(session, wrong)

    assert town.breaches() == ["spend_miscounted"]
