"""Publishing: exactly one version in force at any instant, whoever publishes and however many at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.desk.configure import store_policy
from app.desk.policy.deployed import Grade, look_at_deployed
from app.desk.policy.line import (
    AlreadyPublished,
    PolicyGap,
    PolicyOverlaps,
    PolicyRefused,
    StartsTooSoon,
    read_line,
)
from app.desk.policy.publish import Published, publish
from app.ground.db import rows, transact
from app.ledger.audit import audit
from app.ledger.doctor import examine
from app.ledger.surroundings import statements, surroundings_of
from policy.document import InvalidDocument
from policy.findings import rfc3339
from tests.making import NOON, House, beside, committing, make_event, make_house, make_prepared, sample, wait_until_blocked

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)


def version(label: str, *, start: datetime, end: datetime | None = None) -> dict[str, Any]:
    until = None if end is None else rfc3339(end)
    return sample() | {"version": label, "effective_from": rfc3339(start), "effective_until": until}


def put(session: Session, house: House, label: str, *, start: datetime, end: datetime | None = None) -> Published:
    raw = version(label, start=start, end=end)
    return publish(session, tenant_id=house.tenant_id, raw=raw, actor="test", now=NOON)


def in_force(session: Session, tenant_id: UUID, at: datetime) -> str | None:
    found = [rows(session, sql, **params) for sql, params in statements([tenant_id], [], now=at)]
    policy = surroundings_of(session, found).policies.get(tenant_id)
    return None if policy is None else policy.label


def test_an_open_end_is_closed_by_the_start_of_the_next_version(session: Session) -> None:
    house = make_house(session)
    change = NOON + DAY

    published = put(session, house, "2", start=change)

    assert published.fit.follows == "sample@2026-11-01"
    at = (NOON, change - timedelta(microseconds=1), change, change + 1000 * DAY)
    assert [in_force(session, house.tenant_id, moment) for moment in at] == ["sample@2026-11-01"] * 2 + ["sample@2"] * 2
    first, second = read_line(session, tenant_id=house.tenant_id)
    assert (first.effective_until, first.ends_at, second.ends_at) == (None, change, None)


def test_an_allowance_ends_when_the_next_version_starts(session: Session) -> None:
    """What a worker holds must be asked again under the rules that came meanwhile."""
    house = make_house(session)
    put(session, house, "2", start=NOON + 10 * MINUTE)

    make_event(session, house, now=NOON)

    (decision,) = rows(session, "SELECT verdict, valid_until FROM decision")
    assert (decision.verdict, decision.valid_until) == ("allow", NOON + 10 * MINUTE)


def test_versions_can_be_published_far_ahead_and_between(session: Session) -> None:
    """France's charter of 2026 stands beside that of 2024, and something may still come before it."""
    house = make_house(session)
    put(session, house, "charter", start=NOON + 60 * DAY)

    between = put(session, house, "between", start=NOON + 30 * DAY)

    assert (between.fit.follows, between.fit.precedes) == ("sample@2026-11-01", "sample@charter")
    assert [v.ends_at for v in read_line(session, tenant_id=house.tenant_id)] == [NOON + 30 * DAY, NOON + 60 * DAY, None]


@pytest.mark.parametrize(
    ("start", "end", "refusal", "said"),
    [
        (5 * DAY, None, PolicyOverlaps, "sample@first .* holds until 2026-12-11"),
        (20 * DAY, None, PolicyOverlaps, "both start at 2026-12-21"),
        (10 * DAY, 25 * DAY, PolicyOverlaps, "sample@third is in force .* starts at 2026-12-21"),
        (12 * DAY, None, PolicyGap, "no version would be in force from 2026-12-11T17:00:00Z to 2026-12-13T17:00:00Z"),
        (10 * DAY, 15 * DAY, PolicyGap, "no version would be in force from 2026-12-16T17:00:00Z to 2026-12-21T17:00:00Z"),
    ],
    ids=["into one that has an end", "same start", "over the next", "gap before", "gap after"],
)
def test_overlaps_and_gaps_are_refused_in_a_sentence(
    session: Session, start: timedelta, end: timedelta | None, refusal: type[PolicyRefused], said: str
) -> None:
    house = make_house(session, policy=version("first", start=NOON - DAY, end=NOON + 10 * DAY))
    # The third could not be published before the second: it is what a restored or an older ledger may hold.
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    third = store_third(session, house)

    with pytest.raises(refusal, match=said):
        put(session, house, "second", start=NOON + start, end=None if end is None else NOON + end)

    assert third in {v.id for v in read_line(session, tenant_id=house.tenant_id)}


def store_third(session: Session, house: House) -> UUID:
    """Put a version behind a gap, past the rules."""
    stored = store_policy(session, tenant_id=house.tenant_id, raw=version("third", start=NOON + 10 * DAY), now=NOON)
    start = NOON + 20 * DAY
    rows(
        session,
        """UPDATE policy_version SET effective_from = %(start)s,
                  document = jsonb_set(document, '{effective_from}', to_jsonb(%(written)s::text)) WHERE id = %(id)s""",
        start=start,
        written=rfc3339(start),
        id=stored,
    )
    return stored


def test_what_fills_a_gap_exactly_is_published(session: Session) -> None:
    house = make_house(session, policy=version("first", start=NOON - DAY, end=NOON + 10 * DAY))
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    store_third(session, house)

    put(session, house, "second", start=NOON + 10 * DAY, end=NOON + 20 * DAY)

    assert [in_force(session, house.tenant_id, NOON + d * DAY) for d in (9, 10, 19, 20)] == [
        "sample@first",
        "sample@second",
        "sample@second",
        "sample@third",
    ]


def test_only_a_first_version_may_start_at_once(session: Session) -> None:
    house = make_house(session, policy={})
    put(session, house, "1", start=NOON - DAY)

    with pytest.raises(StartsTooSoon, match="at least 60 s from now"):
        put(session, house, "2", start=NOON + timedelta(seconds=59))

    put(session, house, "2", start=NOON + MINUTE)
    assert in_force(session, house.tenant_id, NOON + MINUTE) == "sample@2"


def test_a_lapse_ends_with_the_next_version_and_is_named_meanwhile(session: Session) -> None:
    house = make_house(session, policy=version("1", start=NOON - 9 * DAY, end=NOON - DAY))
    published = put(session, house, "2", start=NOON + MINUTE)

    assert published.fit.lapsed_since == NOON - DAY
    assert [in_force(session, house.tenant_id, NOON + d * MINUTE) for d in (0, 1)] == [None, "sample@2"]
    assert [s.code for s in examine(session, now=NOON) if s.code == "no_policy"] == ["no_policy"]
    assert [s.code for s in examine(session, now=NOON + MINUTE) if s.code == "no_policy"] == []
    (lapsed,) = [r for r in look_at_deployed(session, now=NOON) if r.grade is Grade.LAPSED]
    assert "NO VERSION IS IN FORCE since 2026-11-30T17:00:00Z; sample@2 starts at 2026-12-01T17:01:00Z" in lapsed.words


def test_a_version_that_lapsed_under_an_older_open_one_is_a_lapse(session: Session) -> None:
    """The older one was ended by it, and does not come back."""
    house = make_house(session)
    put(session, house, "2", start=NOON + DAY, end=NOON + 2 * DAY)

    assert in_force(session, house.tenant_id, NOON + 3 * DAY) is None
    assert [s.code for s in examine(session, now=NOON + 3 * DAY) if s.code == "no_policy"] == ["no_policy"]


def test_a_version_is_published_once_and_the_books_say_by_whom(session: Session) -> None:
    house = make_house(session)
    raw = version("2", start=NOON + DAY)
    published = publish(session, tenant_id=house.tenant_id, raw=raw, actor="cli:ada", reason="new hours", now=NOON)

    with pytest.raises(AlreadyPublished, match="with the same content"):
        publish(session, tenant_id=house.tenant_id, raw=raw, actor="cli:ada", now=NOON)
    with pytest.raises(AlreadyPublished, match="with other content"):
        publish(session, tenant_id=house.tenant_id, raw=raw | {"owner": "legal"}, actor="cli:ada", now=NOON)
    with pytest.raises(InvalidDocument, match="status"):
        publish(session, tenant_id=house.tenant_id, raw=raw | {"status": "final"}, actor="cli:ada", now=NOON)

    (action,) = rows(session, "SELECT actor, verb, reason, subject, at FROM operator_action")
    assert (action.actor, action.verb, action.reason, action.at) == ("cli:ada", "publish_policy", "new hours", NOON)
    assert action.subject["sha256"] == published.document.sha256
    (row,) = rows(session, "SELECT sha256, owner, status FROM policy_version WHERE id = %(id)s", id=published.id)
    assert (row.sha256, row.owner, row.status) == (published.document.sha256, "compliance", "sample")


def test_of_two_publishers_one_wins_and_the_other_is_told(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)

    def attempt(label: str) -> Published:
        raw = version(label, start=datetime(2099, 1, 1, tzinfo=UTC))
        return transact(lambda tx: publish(tx.session, tenant_id=house.tenant_id, raw=raw, actor=label, now=tx.now))

    with committing(fresh_database) as holder:
        rows(holder, "SELECT id FROM tenant WHERE id = %(id)s FOR UPDATE", id=house.tenant_id)
        with beside(lambda: attempt("mine"), lambda: attempt("yours")) as racing:
            wait_until_blocked(fresh_database, 2)
            holder.commit()
            ends = [future.exception(20) for future in racing]

    assert sorted(type(end).__name__ for end in ends) == ["NoneType", "PolicyOverlaps"]
    with committing(fresh_database) as session:
        assert len(read_line(session, tenant_id=house.tenant_id)) == 2
        assert [row.verb for row in rows(session, "SELECT verb FROM operator_action")] == ["publish_policy"]


def breaches(session: Session) -> set[str]:
    """Name what the audit has against the line, or what was handed off under it."""
    of_the_line = {"unexplained", "versions_overlap"}
    return {b.code for b in audit(session, since=None, full=True, now=NOON)} & of_the_line


def plant(session: Session, sql: str) -> None:
    rows(session, "SELECT set_config('daybook.retention', 'on', true)")
    rows(session, sql)


def test_a_line_of_versions_balances_and_a_handoff_under_one_that_had_ended_does_not(session: Session) -> None:
    house = make_house(session)
    put(session, house, "2", start=NOON + DAY)
    make_prepared(session, house)
    before = breaches(session)

    plant(session, "UPDATE policy_version SET effective_from = '2026-11-30T00:00:00Z' WHERE version = '2'")

    assert (before, breaches(session)) == (set(), {"unexplained"})


@pytest.mark.parametrize(
    "planted",
    [
        "UPDATE policy_version SET effective_until = '2027-01-01T00:00:00Z' WHERE version <> '2'",
        "UPDATE policy_version SET effective_from = '2020-01-01T00:00:00Z' WHERE version = '2'",
    ],
    ids=["a written end after the next start", "the same start"],
)
def test_two_versions_in_force_at_once_are_named(session: Session, planted: str) -> None:
    house = make_house(session)
    put(session, house, "2", start=NOON + DAY)

    plant(session, planted)

    assert breaches(session) == {"versions_overlap"}
