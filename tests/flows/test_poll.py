"""Poll: questions with a back-off, answers observed, unchanged ones counted; look-ups settle on one match only."""

from __future__ import annotations

from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.flows.poll import poll_page
from app.ground.db import rows
from policy.checks import LONGEST, next_check
from policy.states import AttemptState
from policy.words import ErrorClass, Source
from tests.making import (
    ANNA,
    BEN,
    NOON,
    SENDER,
    Standing,
    answering,
    attempt_of,
    attempts_of,
    carriers_of,
    clock,
    committing,
    count_of,
    hear,
    intent_of,
    make_attempt,
    make_house,
    make_prepared,
    make_queued,
    prepared_of,
    retry_of,
    reviews_of,
    sample,
    transitions_of,
)

SUBMITTED, UNKNOWN, FAILED = AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.FAILED
MINUTE = timedelta(minutes=1)
TEXT = "A seat opened in Spin 18:00."


def made(engine: Engine, state: AttemptState, *, ago: timedelta = MINUTE, policy: Any = None, **changes: Any) -> Standing:
    with committing(engine) as session:
        now = clock(session) - ago
        return make_attempt(session, make_house(session, policy=policy, now=now), state, now=now, **changes)


def ask_again(engine: Engine, standing: Standing) -> None:
    """Bring the next question forward."""
    with committing(engine) as session:
        rows(session, "UPDATE attempt SET next_check_at = %(now)s WHERE id = %(id)s", now=clock(session), id=standing.attempt_id)


def message(
    sid: str = "SM9", *, status: str = "delivered", body: str = TEXT, at: datetime, sender: str = SENDER, to: str = ANNA
) -> dict[str, Any]:
    return {
        "sid": sid,
        "status": status,
        "body": body,
        "from": sender,
        "to": to,
        "error_code": None,
        "direction": "outbound-api",
        "messaging_service_sid": None,
        "date_created": format_datetime(at),
        "date_updated": format_datetime(at),
        "date_sent": format_datetime(at),
    }


def listing(*messages: dict[str, Any]) -> httpx.MockTransport:
    return answering(200, {"messages": list(messages), "next_page_uri": None})


def prepared_at(engine: Engine, standing: Standing) -> datetime:
    with Session(engine) as session:
        at: datetime = attempt_of(session, standing).prepared_at
        return at


def test_a_poll_brings_the_outcome_that_no_receipt_brought(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")
    transport = answering(200, message("SM1", at=NOON))

    assert poll_page(carrier_of=carriers_of(transport)) == 1

    with Session(fresh_database) as session:
        assert transitions_of(session, standing)[-1] == ("handed_off", "delivered", "delivered")
        assert count_of(session, "observation", source="poll") == 1


def test_what_is_not_due_is_not_asked_about(fresh_database: Engine) -> None:
    made(fresh_database, SUBMITTED, ago=timedelta(seconds=5), remote_id="SM1")

    assert poll_page(carrier_of=carriers_of(answering(200, message("SM1", at=NOON)))) == 0


def test_an_unchanged_answer_is_counted_and_not_appended(fresh_database: Engine) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")
    carrier_of = carriers_of(answering(200, message("SM1", status="sent", at=NOON)))

    poll_page(carrier_of=carrier_of)
    ask_again(fresh_database, standing)
    poll_page(carrier_of=carrier_of)

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.check_count) == ("submitted", 2)
        assert count_of(session, "observation", source="poll") == 0
        assert attempt.next_check_at - clock(session) > timedelta(seconds=55)


@pytest.mark.parametrize("status", [401, 404, 429, 500])
def test_an_unusable_answer_leaves_the_attempt_as_it_is_and_is_asked_again(fresh_database: Engine, status: int) -> None:
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    poll_page(carrier_of=carriers_of(answering(status, {"code": 20404})))

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.next_check_at > clock(session)) == ("submitted", True)


def test_a_poll_that_the_network_eats_is_asked_again(fresh_database: Engine) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    assert poll_page(carrier_of=carriers_of(httpx.MockTransport(fail))) == 1

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).next_check_at > clock(session)


def test_a_claim_is_not_asked_about_by_anybody_else(fresh_database: Engine) -> None:
    made(fresh_database, SUBMITTED, remote_id="SM1")
    inner: list[int] = []

    def ask_inside(_: httpx.Request) -> httpx.Response:
        inner.append(poll_page(carrier_of=carriers_of(answering(500))))
        return httpx.Response(200, json=message("SM1", at=NOON))

    poll_page(carrier_of=carriers_of(httpx.MockTransport(ask_inside)))

    assert inner == [0]


def test_a_close_that_comes_while_we_ask_keeps_its_own_next_check(fresh_database: Engine) -> None:
    """The reschedule moves only a row that still carries our claim."""
    standing = made(fresh_database, SUBMITTED, remote_id="SM1")

    def close_meanwhile(_: httpx.Request) -> httpx.Response:
        with committing(fresh_database) as session:
            rows(session, "UPDATE attempt SET next_check_at = horizon_at")
        return httpx.Response(200, json=message("SM1", status="sent", at=NOON))

    poll_page(carrier_of=carriers_of(httpx.MockTransport(close_meanwhile)))

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert attempt.next_check_at == attempt.horizon_at


def test_that_the_carrier_has_one_in_doubt_is_news_once(fresh_database: Engine) -> None:
    """It bars a later "not found", and is stale all the same."""
    standing = made(fresh_database, UNKNOWN)
    at = prepared_at(fresh_database, standing)
    carrier_of = carriers_of(
        httpx.MockTransport(
            lambda request: httpx.Response(
                200,
                json=message("SM9", status="sent", at=at)
                if request.url.path.endswith("SM9.json")
                else {"messages": [message("SM9", status="sent", at=at)], "next_page_uri": None},
            )
        )
    )

    for _ in range(3):
        ask_again(fresh_database, standing)
        poll_page(carrier_of=carrier_of)

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.taken, count_of(session, "remote_id", remote_id="SM9")) == ("unknown", True, 1)
        assert count_of(session, "observation", judgement="stale") == 1


def test_a_look_up_settles_on_exactly_one_match(fresh_database: Engine) -> None:
    standing = made(fresh_database, UNKNOWN)
    at = prepared_at(fresh_database, standing)

    poll_page(carrier_of=carriers_of(listing(message("SM9", at=at))))

    with Session(fresh_database) as session:
        assert transitions_of(session, standing)[-1] == ("unknown", "delivered", "delivered")
        assert [row.source for row in rows(session, "SELECT source FROM observation ORDER BY id")][-1] == Source.LOOKUP
        assert count_of(session, "remote_id", remote_id="SM9") == 1


@pytest.mark.parametrize(
    "other",
    [
        {"body": "Another text."},
        {"sender": "+15005550007"},
        {"offset": timedelta(minutes=-6)},
        {"offset": timedelta(minutes=6)},
    ],
    ids=["text", "sender", "before", "after"],
)
def test_a_message_that_differs_is_no_match(fresh_database: Engine, other: dict[str, Any]) -> None:
    standing = made(fresh_database, UNKNOWN)
    at = prepared_at(fresh_database, standing) + other.pop("offset", timedelta())

    poll_page(carrier_of=carriers_of(listing(message("SM9", at=at, **other))))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, count_of(session, "remote_id")) == ("unknown", 0)


def test_two_matches_settle_nothing_and_are_not_a_not_found(fresh_database: Engine) -> None:
    standing = made(fresh_database, UNKNOWN, ago=20 * MINUTE)
    at = prepared_at(fresh_database, standing)

    poll_page(carrier_of=carriers_of(listing(message("SM8", at=at), message("SM9", at=at))))

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.not_found_count) == ("unknown", 0)


def test_a_match_that_another_attempt_holds_by_id_is_not_ours(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session) - 20 * MINUTE
        house = make_house(session, policy=sample(cooldown="0s"), now=now)
        make_attempt(session, house, SUBMITTED, remote_id="SM8", now=now, key="k-1")
        standing = make_attempt(session, house, UNKNOWN, now=now + timedelta(seconds=1), subject="c-2")
        rows(session, "UPDATE attempt SET next_check_at = horizon_at WHERE state = 'submitted'")

    poll_page(carrier_of=carriers_of(listing(message("SM8", at=now))))

    with Session(fresh_database) as session:
        attempt = attempt_of(session, standing)
        assert (attempt.state, attempt.not_found_count) == ("unknown", 1)


def test_one_match_that_two_attempts_in_doubt_could_claim_settles_neither(fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        now = clock(session) - 20 * MINUTE
        house = make_house(session, policy=sample(cooldown="0s"), now=now)
        standings = [make_attempt(session, house, UNKNOWN, now=now, subject=f"c-{n}") for n in range(2)]

    poll_page(carrier_of=carriers_of(listing(message("SM9", at=now))))

    with Session(fresh_database) as session:
        found = [attempt_of(session, s) for s in standings]
        assert [(a.state, a.not_found_count) for a in found] == [("unknown", 0)] * 2


def refused_then_in_doubt(engine: Engine, *, source: Source = Source.ANSWER) -> tuple[Standing, datetime]:
    """Let the carrier refuse a first attempt, and leave the second one in doubt."""
    with committing(engine) as session:
        now = clock(session) - 20 * MINUTE
        first = make_prepared(session, make_house(session, now=now), now=now)
        hear(session, first, FAILED, source=source, error_class=ErrorClass.TRANSIENT, now=now)
        later = now + MINUTE
        second = prepared_of(session, retry_of(session, first), now=later)
        hear(session, second, UNKNOWN, source=Source.ANSWER, now=later)
    return second, later


def test_what_the_carrier_refused_in_its_own_answer_could_not_claim_a_match(fresh_database: Engine) -> None:
    standing, at = refused_then_in_doubt(fresh_database)

    poll_page(carrier_of=carriers_of(listing(message("SM9", at=at))))

    with Session(fresh_database) as session:
        assert [a.state for a in attempts_of(session, standing.intent_id)] == ["failed", "delivered"]


def test_a_look_up_in_vain_counts_beside_what_the_carrier_refused(fresh_database: Engine) -> None:
    standing, _ = refused_then_in_doubt(fresh_database)

    for _ in range(2):
        ask_again(fresh_database, standing)
        poll_page(carrier_of=carriers_of(listing()))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, reviews_of(session, standing)) == ("unknown", ["not_found"])


def test_what_failed_by_another_word_than_the_answer_could_claim_a_match(fresh_database: Engine) -> None:
    """The carrier had it once: what it lists may be that one."""
    standing, at = refused_then_in_doubt(fresh_database, source=Source.RECEIPT)

    poll_page(carrier_of=carriers_of(listing(message("SM9", at=at))))

    with Session(fresh_database) as session:
        assert [a.state for a in attempts_of(session, standing.intent_id)] == ["failed", "unknown"]


def test_a_look_up_in_vain_twice_follows_the_rule(fresh_database: Engine) -> None:
    standing = made(fresh_database, UNKNOWN, ago=20 * MINUTE)

    for _ in range(2):
        ask_again(fresh_database, standing)
        poll_page(carrier_of=carriers_of(listing()))

    with Session(fresh_database) as session:
        assert (attempt_of(session, standing).state, reviews_of(session, standing)) == ("unknown", ["not_found"])


def test_a_full_page_of_newer_messages_proves_nothing(fresh_database: Engine) -> None:
    standing = made(fresh_database, UNKNOWN, ago=20 * MINUTE)
    newer = prepared_at(fresh_database, standing) + 10 * MINUTE

    poll_page(carrier_of=carriers_of(listing(*(message(f"SM{n}", at=newer) for n in range(50)))))

    with Session(fresh_database) as session:
        assert attempt_of(session, standing).not_found_count == 0


def test_an_attempt_that_was_sent_again_and_turns_up_holds_the_second_one(fresh_database: Engine) -> None:
    rule = sample(ambiguity={"not_found": "resend", "horizon": "review"})
    standing = made(fresh_database, UNKNOWN, ago=20 * MINUTE, policy=rule)
    for _ in range(2):
        ask_again(fresh_database, standing)
        poll_page(carrier_of=carriers_of(listing()))

    ask_again(fresh_database, standing)
    poll_page(carrier_of=carriers_of(listing(message("SM9", status="sent", at=prepared_at(fresh_database, standing)))))

    with Session(fresh_database) as session:
        assert [a.state for a in attempts_of(session, standing.intent_id)] == ["unknown", "queued"]
        assert intent_of(session, standing).reason == "earlier_attempt"


def test_an_attempt_of_a_restored_ledger_is_looked_up_although_nobody_knows_when_it_left(fresh_database: Engine) -> None:
    """One row without a time of its own must not stop the page for all the others."""
    with committing(fresh_database) as session:
        now = clock(session) - 20 * MINUTE
        house = make_house(session, now=now)
        restored = make_queued(session, house, now=now)
        hear(session, restored, UNKNOWN, source=Source.OPERATOR, now=now)
        other = make_attempt(session, house, SUBMITTED, remote_id="SM1", now=now, subject="c-2", ref="m-2", sms=BEN)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("SM1.json"):
            return httpx.Response(200, json=message("SM1", at=now))
        return httpx.Response(200, json={"messages": [message("SM9", at=now)], "next_page_uri": None})

    assert poll_page(carrier_of=carriers_of(httpx.MockTransport(answer))) == 2

    with Session(fresh_database) as session:
        assert [attempt_of(session, s).state for s in (restored, other)] == ["delivered", "delivered"]


FIRST = timedelta(seconds=15)


@given(st.integers(0, 100), st.floats(0, 1, exclude_max=True))
def test_questions_grow_apart_up_to_a_cap_and_never_pass_the_horizon(count: int, jitter: float) -> None:
    horizon = NOON + timedelta(hours=24)

    at = next_check(count, first_after=FIRST, horizon_at=horizon, jitter=jitter, now=NOON)

    assert NOON + min(FIRST * 2 ** min(count, 20), LONGEST) <= at <= NOON + LONGEST * 1.2
    assert next_check(count, first_after=FIRST, horizon_at=NOON + MINUTE / 6, jitter=jitter, now=NOON) == NOON + MINUTE / 6


@given(st.integers(0, 99), st.floats(0, 1, exclude_max=True))
def test_no_question_comes_sooner_than_the_one_before_it(count: int, jitter: float) -> None:
    horizon = NOON + timedelta(hours=24)

    first, second = (next_check(n, first_after=FIRST, horizon_at=horizon, jitter=jitter, now=NOON) for n in (count, count + 1))

    assert first <= second
