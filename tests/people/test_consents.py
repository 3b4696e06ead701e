"""Consents and preferences: evidence is kept for good, hangs on the address, and the latest act stands."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg import errors
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.ground.db import rows, transact
from app.ground.ids import new_id
from app.people.consents import STANDING as STANDING_CONSENTS
from app.people.consents import NewConsent, list_consents, record_consents
from app.people.contacts import address_hash, read_number
from app.people.evidence import Kept
from app.people.persons import Addressee, NotKept
from app.people.preferences import STANDING as STANDING_PREFERENCES
from app.people.preferences import NewPreference, record_preferences
from app.people.recipients import NewRecipient, NoSuchRecipient, put_recipient, put_recipients, read_recipient
from policy.words import Category
from tests.making import ANNA, BEN, NOON, count_of, lease, make_house, make_queued, outbox_of, prepare_all, together

DAY = timedelta(days=1)
ACTOR = "key:test"
LOCAL = "+44 (0)161 496 0000"
PLAIN = "+441614960000"


def consent(
    act: str = "grant",
    *,
    ref: str = "m-1",
    sms: str | None = ANNA,
    category: str | None = "marketing",
    kind: str | None = "express",
    at: datetime | None = NOON,
    expires_at: datetime | None = None,
) -> NewConsent:
    about = Addressee(ref, "sms", read_number(sms) if sms else None)
    return NewConsent(about, category, act, kind, at, expires_at, "w-1", "form")


def record(session: Session, tenant_id: UUID, *new: NewConsent, now: datetime = NOON + DAY) -> list[Kept | NotKept]:
    return record_consents(session, new, tenant_id=tenant_id, actor=ACTOR, now=now)


def standing(session: Session, statement: str, tenant_id: UUID, sms: str = ANNA) -> list[Any]:
    return rows(session, statement, gate_tenants=[tenant_id], hashes=[address_hash("sms", sms).digest])


def granted(session: Session, tenant_id: UUID, sms: str = ANNA) -> set[tuple[str, str]]:
    return {(row.category, row.kind) for row in standing(session, STANDING_CONSENTS, tenant_id, sms) if not row.withdrawn}


def test_a_number_written_in_two_ways_is_one_person(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    record(session, tenant_id, consent(sms=LOCAL))
    record(session, tenant_id, consent("withdraw", ref="m-2", sms=PLAIN, at=NOON + DAY))

    assert granted(session, tenant_id, PLAIN) == set()
    assert count_of(session, "consent", tenant_id=tenant_id) == 2


@pytest.mark.parametrize(
    ("acts", "stands"),
    [
        ([consent()], {("marketing", "express")}),
        ([consent(), consent("withdraw", kind=None, at=NOON + DAY)], set()),
        ([consent(), consent("withdraw", kind=None)], set()),  # at the same instant
        ([consent("withdraw", kind=None), consent(at=NOON + DAY)], {("marketing", "express")}),
        ([consent(), consent("withdraw", category=None, kind=None, at=NOON + DAY)], set()),
        ([consent(at=NOON - DAY), consent("withdraw", kind="night", at=NOON)], {("marketing", "express")}),
        ([consent(), consent(kind="night"), consent("withdraw", kind="night", at=NOON + DAY)], {("marketing", "express")}),
        (
            [consent(category=None), consent("withdraw", kind=None, at=NOON + DAY)],
            {("otp", "express"), ("operational", "express"), ("transactional", "express")},
        ),
    ],
)
def test_the_latest_act_that_covers_a_category_stands(
    session: Session, acts: list[NewConsent], stands: set[tuple[str, str]]
) -> None:
    tenant_id = make_house(session).tenant_id

    record(session, tenant_id, *acts)

    assert granted(session, tenant_id) == stands


def test_evidence_that_comes_late_does_not_undo_a_withdrawal_after_it(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    record(session, tenant_id, consent("withdraw", kind=None, at=NOON), now=NOON)
    record(session, tenant_id, consent(at=NOON - DAY), now=NOON + DAY)

    assert granted(session, tenant_id) == set()


def test_a_clock_that_runs_ahead_gains_nothing(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    ahead = record(session, tenant_id, consent(at=NOON + timedelta(minutes=4)), now=NOON)
    record(session, tenant_id, consent("withdraw", kind=None, at=None), now=NOON + timedelta(minutes=1))
    too_far = record(session, tenant_id, consent(at=NOON + timedelta(minutes=6)), now=NOON)

    assert isinstance(ahead[0], Kept)
    assert granted(session, tenant_id) == set()
    assert too_far == [NotKept.IN_THE_FUTURE]


def test_consents_of_other_tenants_and_addresses_do_not_count(session: Session) -> None:
    """Also when both are asked about at once, as a page of several tenants is."""
    ours, theirs = make_house(session).tenant_id, make_house(session).tenant_id
    record(session, ours, consent(), consent(sms=BEN))
    record(session, theirs, consent(), consent("withdraw", kind=None, at=NOON + DAY))

    anna = address_hash("sms", ANNA).digest
    found = rows(session, STANDING_CONSENTS, gate_tenants=[ours, theirs], hashes=[anna, anna])

    assert {row.tenant_id: row.withdrawn for row in found} == {ours: False, theirs: True}
    assert {bytes(row.address_hash) for row in found} == {anna}


def test_the_same_evidence_told_twice_is_one_row(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    first, repeated, other = record(session, tenant_id, consent(), consent(), consent(kind="express_written"))
    again = record(session, tenant_id, consent(), now=NOON + 2 * DAY)[0]

    assert isinstance(first, Kept)
    assert (repeated, again) == (Kept(first.id, is_new=False), Kept(first.id, is_new=False))
    assert first.is_new
    assert isinstance(other, Kept)
    assert other.is_new
    assert count_of(session, "consent", tenant_id=tenant_id) == 2


@pytest.mark.parametrize("table", ["consent", "preference", "recipient"])
@pytest.mark.parametrize("change", ["DELETE FROM {}", "UPDATE {} SET recorded_by = 'somebody'"])
def test_what_was_told_is_kept_for_good(session: Session, table: str, change: str) -> None:
    tenant_id = make_house(session).tenant_id
    put_recipient(session, NewRecipient("m-1", read_number(ANNA)), tenant_id=tenant_id, actor=ACTOR, now=NOON)
    record(session, tenant_id, consent())
    prefer(session, tenant_id, wanted=False)

    with pytest.raises(errors.RestrictViolation):
        rows(session, change.format(table))


def test_an_address_stands_in_the_vault_alone(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    put_recipient(session, NewRecipient("m-1", read_number(ANNA)), tenant_id=tenant_id, actor=ACTOR, now=NOON)
    record(session, tenant_id, consent())
    prefer(session, tenant_id, wanted=False)

    kept = rows(
        session,
        """SELECT (SELECT string_agg(c::text, '') FROM consent c) || (SELECT string_agg(p::text, '') FROM preference p)
               || (SELECT string_agg(r::text, '') FROM recipient r) || (SELECT string_agg(k::text, '') FROM contact k) AS text""",
    )[0].text

    assert ANNA.removeprefix("+1") not in kept
    assert ANNA.removeprefix("+1").encode().hex() not in kept


def test_an_erased_person_is_not_written_to_and_not_read(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    put_recipient(session, NewRecipient("m-1", read_number(ANNA)), tenant_id=tenant_id, actor=ACTOR, now=NOON)
    rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = %(now)s", now=NOON)

    recorded = record(session, tenant_id, consent())
    put = put_recipient(session, NewRecipient("m-1", read_number(BEN)), tenant_id=tenant_id, actor=ACTOR, now=NOON)

    assert (recorded, put, prefer(session, tenant_id, wanted=True)) == ([NotKept.ERASED], NotKept.ERASED, NotKept.ERASED)
    with pytest.raises(NoSuchRecipient):
        read_recipient(session, tenant_id=tenant_id, ref="m-1")


def test_a_withdrawal_holds_what_was_decided_before_it(session: Session) -> None:
    """The decision still says allow, and its lease is current: only the gate knows better."""
    house = make_house(session)
    leased = lease(session, make_queued(session, house))

    record(session, house.tenant_id, consent("withdraw", kind=None, at=NOON), now=NOON)
    prepared = prepare_all(session, leased)

    assert prepared.handoffs == []
    assert outbox_of(session, leased).lease is None  # it is due, to be decided again


def test_a_wish_not_to_be_contacted_holds_what_was_decided_before_it(session: Session) -> None:
    house = make_house(session)
    leased = lease(session, make_queued(session, house))

    prefer(session, house.tenant_id, wanted=False)

    assert prepare_all(session, leased).handoffs == []


def test_a_grant_holds_nothing(session: Session) -> None:
    house = make_house(session)
    leased = lease(session, make_queued(session, house))

    record(session, house.tenant_id, consent(), now=NOON)

    assert [each.attempt_id for each in prepare_all(session, leased).handoffs] == [leased.attempt_id]


def test_racing_writers_know_a_person_once(fresh_database: Engine) -> None:
    """The loser of the race for the person's key must not leave an address sealed under a key that nobody kept."""
    tenant_id = new_id()

    def tell(kind: str) -> list[Kept | NotKept]:
        return transact(lambda tx: record(tx.session, tenant_id, consent(kind=kind), now=tx.now + 400 * DAY))

    results = together(*[lambda kind=kind: tell(kind) for kind in ("express", "express_written", "night", "dnc_checked")])

    assert all(isinstance(result[0], Kept) and result[0].is_new for result in results)
    with Session(fresh_database) as session:
        assert (count_of(session, "person_key"), count_of(session, "contact"), count_of(session, "consent")) == (1, 1, 4)


def test_racing_descriptions_are_versions_one_after_the_other(fresh_database: Engine) -> None:
    tenant_id = new_id()

    def put(zone: str) -> object:
        new = NewRecipient("m-1", read_number(ANNA), zone)
        return transact(lambda tx: put_recipient(tx.session, new, tenant_id=tenant_id, actor=ACTOR, now=tx.now))

    together(*[lambda zone=zone: put(zone) for zone in ("Europe/London", "Europe/Paris", "Europe/Rome", "Asia/Tokyo")])

    with Session(fresh_database) as session:
        found = rows(session, "SELECT version FROM recipient ORDER BY version")
    assert [row.version for row in found] == [1, 2, 3, 4]


def test_acts_are_listed_newest_first_by_a_cursor_that_skips_none(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    record(session, tenant_id, *[consent(at=NOON - n * DAY) for n in range(5)])
    record(session, tenant_id, consent("withdraw", kind=None), now=NOON + 2 * DAY)

    first = list_consents(session, tenant_id=tenant_id, ref="m-1", after=None, limit=4)
    rest = list_consents(session, tenant_id=tenant_id, ref="m-1", after=first[-1].id, limit=4)

    assert first[0].act == "withdraw"
    assert (len(first), len(rest)) == (4, 2)
    assert len({row.id for row in (*first, *rest)}) == 6


# Preferences and recipients.


def prefer(
    session: Session,
    tenant_id: UUID,
    *,
    wanted: bool,
    category: str | None = "marketing",
    at: datetime | None = None,
    now: datetime = NOON,
    sms: str | None = ANNA,
) -> Kept | NotKept:
    about = Addressee("m-1", "sms", read_number(sms) if sms else None)
    return record_preferences(session, [NewPreference(about, category, wanted, at)], tenant_id=tenant_id, actor=ACTOR, now=now)[0]


def wishes(session: Session, tenant_id: UUID, sms: str = ANNA) -> dict[str, bool]:
    return {row.category: row.wanted for row in standing(session, STANDING_PREFERENCES, tenant_id, sms)}


def test_the_latest_wish_stands_and_one_without_a_category_is_for_all(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    prefer(session, tenant_id, wanted=True, category="operational", at=NOON - 2 * DAY)
    prefer(session, tenant_id, wanted=False, category=None, at=NOON - DAY)
    prefer(session, tenant_id, wanted=True, at=NOON)

    expected = dict.fromkeys(map(str, Category), False) | {"marketing": True}
    assert wishes(session, tenant_id) == expected


@pytest.mark.parametrize("all_of_them", [True, False])
def test_told_in_one_breath_the_narrower_wish_qualifies_the_wider(session: Session, *, all_of_them: bool) -> None:
    """Told again it changes nothing, neither what stands nor the rows."""
    tenant_id = make_house(session).tenant_id
    about = Addressee("m-1", "sms", read_number(ANNA))
    told = [NewPreference(about, "marketing", not all_of_them, None), NewPreference(about, None, all_of_them, None)]
    expected = dict.fromkeys(map(str, Category), all_of_them) | {"marketing": not all_of_them}

    record_preferences(session, told, tenant_id=tenant_id, actor=ACTOR, now=NOON)
    first = wishes(session, tenant_id)
    record_preferences(session, told, tenant_id=tenant_id, actor=ACTOR, now=NOON + DAY)

    assert (first, wishes(session, tenant_id)) == (expected, expected)
    assert count_of(session, "preference", tenant_id=tenant_id) == len(told)


def test_a_wish_that_stands_already_is_not_written_again(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    first = prefer(session, tenant_id, wanted=False, category=None)
    repeated = [prefer(session, tenant_id, wanted=False, category=c, now=NOON + DAY) for c in (None, "marketing")]
    other = prefer(session, tenant_id, wanted=True, now=NOON + DAY)

    assert isinstance(first, Kept)
    assert repeated == [Kept(first.id, is_new=False)] * 2
    assert isinstance(other, Kept)
    assert other.is_new


def put_number(session: Session, tenant_id: UUID, sms: str | None, *, now: datetime = NOON) -> None:
    new = NewRecipient("m-1", read_number(sms) if sms else None)
    put_recipient(session, new, tenant_id=tenant_id, actor=ACTOR, now=now)


def test_what_a_person_does_not_want_follows_them_to_a_new_number_and_consent_does_not(session: Session) -> None:
    """Also when the number was taken away in between: numbers go to others, people stay who they are."""
    tenant_id = make_house(session).tenant_id
    put_number(session, tenant_id, ANNA)
    prefer(session, tenant_id, wanted=False, sms=None)
    record(session, tenant_id, consent(sms=None))

    put_number(session, tenant_id, None, now=NOON + DAY)
    put_number(session, tenant_id, BEN, now=NOON + 2 * DAY)

    assert wishes(session, tenant_id, BEN) == {"marketing": False}
    assert granted(session, tenant_id, BEN) == set()
    assert granted(session, tenant_id, ANNA) == {("marketing", "express")}


def test_without_a_stored_address_there_is_nothing_to_hang_a_consent_on(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    assert record(session, tenant_id, consent(sms=None)) == [NotKept.NO_ADDRESS]
    assert count_of(session, "person_key", tenant_id=tenant_id) == 0


def test_a_new_address_is_a_new_contact_and_the_old_one_stays(session: Session) -> None:
    tenant_id = make_house(session).tenant_id

    put_number(session, tenant_id, ANNA)
    put_number(session, tenant_id, ANNA)
    put_number(session, tenant_id, BEN)

    view = read_recipient(session, tenant_id=tenant_id, ref="m-1")
    assert (view.version, [address.address for address in view.addresses]) == (2, ["••••••••••24"])
    assert count_of(session, "contact", tenant_id=tenant_id) == 2


def test_one_page_may_describe_a_person_twice(session: Session) -> None:
    tenant_id = make_house(session).tenant_id
    told = [NewRecipient("m-1", read_number(ANNA)), NewRecipient("m-2"), NewRecipient("m-1", read_number(BEN))]

    put_recipients(session, told, tenant_id=tenant_id, actor=ACTOR, now=NOON)

    assert read_recipient(session, tenant_id=tenant_id, ref="m-1").version == 2
    assert read_recipient(session, tenant_id=tenant_id, ref="m-2").addresses == ()
