"""Receipts: verified, kept once, matched now or later, observed by whoever comes first; the rest changes nothing."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.carriers.base import Call
from app.flows.receipts import Taken, observe_page, take_receipt
from app.flows.reconcile.receipts import observe_waiting
from app.ground.db import rows
from app.ground.ids import new_id
from app.ledger.books import lock_books
from app.ledger.receipts import REFUSED_KEPT, Kept, keep_receipts, keep_refused, read_call
from app.ledger.routes import read_routes
from app.people.vault import open_vault_key
from policy.states import AttemptState
from simulator.dialect import sign
from tests.making import (
    ACCOUNT,
    ANNA,
    BEN,
    House,
    Standing,
    attempt_of,
    beside,
    clock,
    committing,
    count_of,
    hear,
    make_attempt,
    make_house,
    together,
    transitions_of,
    wait_until_blocked,
)

PREPARED, SUBMITTED = AttemptState.PREPARED, AttemptState.SUBMITTED


def made(engine: Engine, state: AttemptState, **changes: Any) -> Standing:
    with committing(engine) as session:
        now = clock(session)
        return make_attempt(session, make_house(session, now=now), state, now=now, **changes)


def call(
    house: House,
    status: str = "delivered",
    *,
    sid: str = "SM1",
    to: str = ANNA,
    key: str | None = None,
    secret: str = ACCOUNT.auth_token,
    **more: str,
) -> Call:
    """Write a signed callback; `key` is our reference in its URL."""
    query = urlencode({"key": key}) if key else ""
    form = {"MessageSid": sid, "MessageStatus": status, "To": to, "AccountSid": ACCOUNT.sid, **more}
    url = house.receipt_url + (f"?{query}" if query else "")
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Twilio-Signature": sign(secret, url, form)}
    return Call("POST", query.encode(), headers, urlencode(form).encode())


def reference_of(engine: Engine, standing: Standing) -> str:
    with Session(engine) as session:
        key: str = attempt_of(session, standing).attempt_key
        return key


def statuses(session: Session) -> list[str]:
    return [row.status for row in rows(session, "SELECT status FROM receipt ORDER BY received_at, id")]


def let_time_pass(engine: Engine) -> None:
    with committing(engine) as session:
        rows(session, "UPDATE receipt SET received_at = received_at - interval '1 minute'")


def test_a_receipt_settles_its_attempt_and_is_marked_observed(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    assert take_receipt(standing.house.route_id, call(standing.house)) is Taken.KEPT

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("delivered", ["observed"])
        assert count_of(session, "observation", source="receipt") == 1


def test_a_receipt_that_is_faster_than_the_answer_finds_its_attempt_by_our_reference(fresh_database: Engine) -> None:
    standing = made(fresh_database, PREPARED)

    take_receipt(standing.house.route_id, call(standing.house, key=reference_of(fresh_database, standing)))

    with Session(fresh_database) as session:
        assert transitions_of(session, standing)[-1] == ("queued", "delivered", "delivered")
        assert count_of(session, "remote_id", remote_id="SM1") == 1


def test_a_repeated_call_is_counted_and_changes_nothing(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    taken = [take_receipt(standing.house.route_id, call(standing.house)) for _ in range(3)]

    assert taken == [Taken.KEPT] * 3
    with Session(fresh_database) as session:
        assert (statuses(session), count_of(session, "receipt", repeat_count=2)) == (["observed"], 1)
        assert (count_of(session, "observation", source="receipt"), count_of(session, "receipt_raw")) == (1, 1)


def test_two_statuses_of_one_message_are_two_receipts(fresh_database: Engine) -> None:
    """The key under which calls are the same holds the status: not only the first one of a message is heard."""
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    for status in ("sent", "delivered"):
        take_receipt(standing.house.route_id, call(standing.house, status))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, len(statuses(session))) == ("delivered", 2)


def test_calls_side_by_side_are_one_receipt_and_one_observation(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    together(*[lambda: take_receipt(standing.house.route_id, call(standing.house))] * 4)

    with Session(fresh_database) as session:
        assert (statuses(session), count_of(session, "observation", source="receipt")) == (["observed"], 1)


def test_a_call_that_does_not_verify_is_kept_apart_and_changes_nothing(fresh_database: Engine) -> None:
    """It never occupies the key under which the real one will come."""
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    refused = take_receipt(standing.house.route_id, call(standing.house, secret="guess"))
    kept = take_receipt(standing.house.route_id, call(standing.house))

    assert (refused, kept) == (Taken.REFUSED, Taken.KEPT)
    with Session(fresh_database) as session:
        assert (count_of(session, "refused_receipt"), statuses(session)) == (1, ["observed"])


def test_a_call_on_a_route_that_is_not_there_is_told_apart(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    assert take_receipt(new_id(), call(standing.house)) is Taken.NO_ROUTE


def test_refused_calls_are_capped(session: Session) -> None:
    now = clock(session)
    house = make_house(session, now=now)
    route = read_routes(session, [house.route_id])[house.route_id]
    keep_refused(session, route, call(house), cause="not_authentic", now=now)
    fill = """INSERT INTO refused_receipt SELECT gen_random_uuid(), tenant_id, route_id, cause, person_key_id, sealed_call,
              received_at + n * interval '1 s' FROM refused_receipt, generate_series(1, %(n)s) n"""
    rows(session, fill, n=REFUSED_KEPT)

    keep_refused(session, route, call(house), cause="not_authentic", now=now + timedelta(hours=1))

    oldest = rows(session, "SELECT min(received_at) AS at FROM refused_receipt")[0].at
    assert (count_of(session, "refused_receipt"), oldest) == (REFUSED_KEPT, now + timedelta(seconds=2))


def test_a_receipt_for_another_recipient_is_quarantined(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    take_receipt(standing.house.route_id, call(standing.house, to=BEN))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("submitted", ["quarantined"])


def test_a_call_that_cannot_be_read_is_quarantined_with_its_raw_text(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    for _ in range(2):
        take_receipt(standing.house.route_id, call(standing.house, sid=""))

    with Session(fresh_database) as session:
        assert (statuses(session), count_of(session, "receipt_raw")) == (["quarantined"], 1)


def test_a_word_that_nobody_knows_is_doubt_and_not_a_failure(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    take_receipt(standing.house.route_id, call(standing.house, "teleported"))

    with Session(fresh_database) as session:
        assert transitions_of(session, standing)[-1] == ("handed_off", "unknown", "unknown_word")


def test_a_message_to_us_is_no_news(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    take_receipt(standing.house.route_id, call(standing.house, "received", sid="SM7"))

    with Session(fresh_database) as session:
        assert (statuses(session), count_of(session, "observation", source="receipt")) == (["no_news"], 0)


def test_a_receipt_that_matches_nobody_is_matched_when_the_remote_id_comes(fresh_database: Engine) -> None:
    standing = made(fresh_database, PREPARED)
    take_receipt(standing.house.route_id, call(standing.house))
    with committing(fresh_database) as session:
        assert statuses(session) == ["unmatched"]
        hear(session, standing, SUBMITTED, remote_id="SM1", now=clock(session))
    let_time_pass(fresh_database)

    assert observe_waiting() == 1

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("delivered", ["observed"])


def test_a_repetition_of_what_matched_nobody_is_observed_once_it_matches(fresh_database: Engine) -> None:
    """Handler, duplicate and reconcile alike observe whatever is not observed yet."""
    standing = made(fresh_database, PREPARED)
    take_receipt(standing.house.route_id, call(standing.house))
    with committing(fresh_database) as session:
        hear(session, standing, SUBMITTED, remote_id="SM1", now=clock(session))

    take_receipt(standing.house.route_id, call(standing.house))
    let_time_pass(fresh_database)
    observe_waiting()

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("delivered", ["observed"])
        assert count_of(session, "observation", source="receipt", state="delivered") == 1


def test_a_repetition_of_what_was_kept_and_never_observed_is_observed(fresh_database: Engine) -> None:
    """The process that kept the first one died before it observed."""
    standing = kept_only(fresh_database)

    take_receipt(standing.house.route_id, call(standing.house))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("delivered", ["observed"])


def kept_only(engine: Engine) -> Standing:
    standing = made(engine, SUBMITTED, remote_id="SM1")
    keep(engine, standing, call(standing.house))
    return standing


def keep(engine: Engine, standing: Standing, *calls: Call) -> list[Kept]:
    with committing(engine) as session:
        route = read_routes(session, [standing.house.route_id])[standing.house.route_id]
        return keep_receipts(session, route, [read_call(route, each) for each in calls], now=clock(session))


def test_what_is_kept_together_is_kept_in_order_and_a_repetition_among_it_once(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")
    told = [call(standing.house, "delivered"), call(standing.house, "sent"), call(standing.house, "delivered")]

    kept = keep(fresh_database, standing, *told, call(standing.house, sid="SM2"), call(standing.house, sid=""))

    assert [(each.status, each.duplicate) for each in kept] == [
        ("waiting", False), ("waiting", False), ("waiting", True), ("unmatched", False), ("quarantined", False),
    ]  # fmt: skip
    assert kept[0].told == kept[2].told
    assert [each.told[0].state for each in kept[:2]] == ["delivered", "submitted"]
    with Session(fresh_database) as session:
        assert count_of(session, "receipt_raw") == len(statuses(session)) == 4


def test_receipts_of_one_page_do_not_wait_for_the_one_whose_books_are_held(fresh_database: Engine) -> None:
    held, free = kept_only(fresh_database), kept_only(fresh_database)
    pages = [keep(fresh_database, each, call(each.house)) for each in (held, free)]

    with Session(fresh_database) as other, other.begin():
        lock_books(other, [held.intent_id])
        assert observe_page([*pages[0], *pages[1], *pages[1]]) == [False, True, True]
        with Session(fresh_database) as session:
            assert [attempt_of(session, each).state for each in (held, free)] == ["submitted", "delivered"]
            assert statuses(session) == ["waiting", "observed"]


def test_what_was_kept_and_never_observed_is_observed_by_the_sweep_a_little_later(fresh_database: Engine) -> None:
    standing = kept_only(fresh_database)

    at_once = observe_waiting()
    let_time_pass(fresh_database)

    assert (at_once, observe_waiting(), observe_waiting()) == (0, 1, 0)
    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("delivered", ["observed"])


def test_a_receipt_waits_for_whoever_is_writing_about_its_attempt(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    with Session(fresh_database) as other, other.begin():
        lock_books(other, [standing.intent_id])
        with beside(lambda: take_receipt(standing.house.route_id, call(standing.house))) as (taking,):
            wait_until_blocked(fresh_database)
            with Session(fresh_database) as session:
                assert statuses(session) == ["waiting"]
            other.rollback()
            assert taking.result(10) is Taken.KEPT

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "delivered"


def test_a_poison_receipt_does_not_stop_the_sweep(fresh_database: Engine) -> None:
    poisoned, whole = kept_only(fresh_database), kept_only(fresh_database)
    with committing(fresh_database) as session:
        rows(
            session,
            """UPDATE receipt SET reports = jsonb_set(reports, '{0,part}', '99999') WHERE attempt_id = %(id)s""",
            id=poisoned.attempt_id,
        )
        rows(
            session,
            "UPDATE receipt SET reports = jsonb_set(reports, '{0,remote_id}', '\"SM5\"') WHERE attempt_id = %(id)s",
            id=poisoned.attempt_id,
        )
    let_time_pass(fresh_database)

    observe_waiting()

    with Session(fresh_database) as session:
        assert attempt_of(session, whole).state == "delivered"
        assert count_of(session, "review", cause="observation_refused", attempt_id=poisoned.attempt_id) == 1
        assert statuses(session) == ["observed", "observed"]


def test_a_poison_receipt_is_kept_and_does_not_stop_those_that_came_with_it(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session)
        house = make_house(session, now=now)
        poisoned = make_attempt(session, house, SUBMITTED, now=now, remote_id="SM1")
        ben = {"ref": "m-2", "sms": BEN}
        whole = make_attempt(session, house, SUBMITTED, now=now, remote_id="SM2", recipient=ben)
    calls = [call(house), call(house, sid="SM2", to=BEN)]
    keep(fresh_database, poisoned, *calls)
    with committing(fresh_database) as session:
        rows(
            session,
            """UPDATE receipt SET reports = jsonb_set(jsonb_set(reports, '{0,part}', '99999'), '{0,remote_id}', '"SM5"')
               WHERE attempt_id = %(id)s""",
            id=poisoned.attempt_id,
        )

    taken = together(*(partial(take_receipt, house.route_id, each) for each in calls))

    assert taken == [Taken.KEPT] * 2
    with Session(fresh_database) as session:
        assert [attempt_of(session, each).state for each in (poisoned, whole)] == ["submitted", "delivered"]
        assert sorted(statuses(session)) == ["observed", "waiting"]


def test_the_raw_call_is_sealed_under_the_persons_key(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    take_receipt(standing.house.route_id, call(standing.house))

    with Session(fresh_database) as session:
        (raw,) = rows(
            session,
            "SELECT r.sealed_call, k.id, k.name, k.wrapped_key FROM receipt_raw r JOIN person_key k ON k.id = r.person_key_id",
        )
        assert (raw.name, ANNA[1:].encode() in bytes(raw.sealed_call)) == ("m-1", False)
        assert open_vault_key(raw.id, raw.wrapped_key).open(raw.sealed_call)["method"] == "POST"


@pytest.mark.parametrize("state", [AttemptState.FAILED, AttemptState.UNKNOWN])
def test_a_receipt_comes_late_and_counts(fresh_database: Engine, state: AttemptState) -> None:
    standing = made(fresh_database, state)

    take_receipt(standing.house.route_id, call(standing.house, key=reference_of(fresh_database, standing)))

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).state == "delivered"


def test_a_receipt_on_another_tenants_route_matches_nobody(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")
    with committing(fresh_database) as session:
        other = make_house(session, now=clock(session))

    take_receipt(other.route_id, call(other, key=reference_of(fresh_database, standing)))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, statuses(session)) == ("submitted", ["unmatched"])
