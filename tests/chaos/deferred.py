"""Offers that were put off hours ago: accepted by the real verb at times of our choosing, and copied set-based by the hundred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, Final
from uuid import UUID

import psycopg
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.ground.config import database_url
from app.ledger.accept import Refused, accept
from app.ledger.request import NewEvent, read_request
from tests.chaos.backlog import COLUMNS, COPIED, OURS, copying

MINUTE: Final = timedelta(minutes=1)
MAX_AGE: Final = 190 * MINUTE
DOWN_FOR: Final = timedelta(hours=3)

# In the order in which they end, since the claim takes what fell due together by id: what is about to
# end is leased while it ends.
COPIES: Final = """
CREATE TEMPORARY TABLE copy ON COMMIT DROP AS
SELECT original_event, original, n, uuidv7() AS event_id, uuidv7() AS intent_id, uuidv7() AS attempt_id, uuidv7() AS decision_id
FROM (SELECT i.event_id AS original_event, a.id AS original, n
      FROM intent i JOIN attempt a ON a.intent_id = i.id CROSS JOIN generate_series(1, %s) n
      WHERE i.event_id = ANY(%s::uuid[]) ORDER BY i.expires_at, n, a.id) ordered
"""
# Two transitions each: queued and deferred.
STEPS: Final = {"transition": ("t.attempt_id = c.original", OURS | {"id": "uuidv7()", "cause_id": "c.decision_id"})}
PLACES: Final = """
INSERT INTO feed (transition_id, intent_id, tenant_id, recipient_ref)
SELECT t.id, t.intent_id, i.tenant_id, i.recipient_ref
FROM copy c JOIN intent i ON i.id = c.intent_id JOIN transition t ON t.intent_id = i.id ORDER BY t.intent_id, t.n
"""
ANALYZE: Final = "ANALYZE event, intent, attempt, decision, transition, outbox, feed"


@dataclass(frozen=True, slots=True)
class Offer:
    """One offer, as it was accepted before everything went down."""

    subject: str
    accepted_at: datetime
    expires_at: datetime | None
    """None: it ends by the category's maximum age."""
    not_before: datetime | None = None

    @property
    def ends_at(self) -> datetime:
        """Say from when on it must not leave any more."""
        oldest = self.accepted_at + MAX_AGE
        return oldest if self.expires_at is None else min(oldest, self.expires_at)

    def request(self, *, ref: str, sms: str) -> dict[str, Any]:
        """Write it as an application would post it."""
        times = {"expires_at": self.expires_at, "not_before": self.not_before}
        return {
            "type": "class.opening",
            "subject": self.subject,
            "recipient": {"ref": ref, "sms": sms, "time_zone": "UTC"},
            "template": "offer",
            "data": {"class": "Spin 18:00"},
        } | {name: at.isoformat() for name, at in times.items() if at is not None}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was put off, around the moment at which the workers are there again."""

    now: datetime
    resumed_at: datetime
    passed: Sequence[Offer]
    """Over before anybody is back."""
    ending: Sequence[Offer]
    """Over while they are at work on it."""
    ample: Sequence[Offer]
    """In time for long after the test."""

    @property
    def offers(self) -> list[Offer]:
        """Give them all."""
        return [*self.passed, *self.ending, *self.ample]

    @property
    def last_end(self) -> datetime:
        """Say when the last of those that end soon has ended."""
        return max(offer.ends_at for offer in self.ending)


def make_plan(*, now: datetime, resumed_at: datetime, passed: int, ending: int, ample: int, ending_for: timedelta) -> Plan:
    """Lay out offers, half of which end by what the event said and half by their age; one in ten of the ample waits on."""
    long_ago = now - 50 * MINUTE
    return Plan(
        now,
        resumed_at,
        passed=[_ending("passed", n, long_ago + (now - long_ago) * n / passed, now) for n in range(passed)],
        ending=[_ending("ending", n, resumed_at + ending_for * n / ending, now) for n in range(ending)],
        ample=[_ample(n, now) for n in range(ample)],
    )


def _ending(name: str, n: int, end: datetime, now: datetime) -> Offer:
    by_age = n % 2 == 0
    return Offer(f"{name}{n}", end - MAX_AGE if by_age else _last_accepted(now), None if by_age else end)


def _ample(n: int, now: datetime) -> Offer:
    ends = now + 8 * MINUTE if n % 2 else None
    return Offer(f"ample{n}", _last_accepted(now), ends, now + 7 * MINUTE if n % 10 == 0 else None)


def _last_accepted(now: datetime) -> datetime:
    return now - DOWN_FOR - MINUTE


def put_off(url: str, tenant: str, plan: Plan, *, copies_of_each: int) -> int:
    """Accept the offers as of their time and copy them; return how many are waiting."""
    originals = _accept(url, tenant, plan.offers)
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(COPIES, [copies_of_each, originals])
        for table, (join, changes) in {**COPIED, **STEPS}.items():
            names = [name for (name,) in connection.execute(COLUMNS, [table])]
            connection.execute(copying(table, names, join, changes))
        connection.execute(PLACES)
        connection.execute(ANALYZE)
        waiting = connection.execute("SELECT count(*) FROM outbox WHERE reason IN ('outside_window', 'not_before')").fetchone()
    assert waiting is not None
    return int(waiting[0])


def _accept(url: str, tenant: str, offers: Sequence[Offer]) -> list[UUID]:
    engine = create_engine(database_url(url), connect_args={"prepare_threshold": None})
    people = _people()
    accepted: list[UUID] = []
    with Session(engine, expire_on_commit=False) as session, session.begin():
        tenant_id = session.connection().exec_driver_sql("SELECT id FROM tenant WHERE name = %s", (tenant,)).scalar_one()
        ordered = sorted(offers, key=lambda offer: offer.accepted_at)
        for at, together in groupby(ordered, key=lambda offer: offer.accepted_at):
            requests = [_read(offer.request(**next(people))) for offer in together]
            views = accept(session, requests, tenant_id=tenant_id, source="api", now=at)
            assert not any(isinstance(view, Refused) for view in views), views
            accepted += [view.event_id for view in views if not isinstance(view, Refused)]
    engine.dispose()
    return accepted


def _read(raw: Mapping[str, Any]) -> NewEvent:
    request = read_request(dict(raw))
    assert isinstance(request, NewEvent), request
    return request


def _people() -> Iterator[dict[str, str]]:
    """Give people with numbers for fiction; the house is ours alone, so others may use them as well."""
    numbers = (f"+1{area}55501{n:02d}" for area in ("201", "202", "203", "205", "206", "207") for n in range(100))
    return ({"ref": f"m-{n}", "sms": sms} for n, sms in enumerate(numbers))
