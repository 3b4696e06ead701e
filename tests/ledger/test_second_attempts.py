"""Second attempts on the books: what a failure or a doubt becomes, for every class and every rule."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from app.flows.reconcile.unheard import _answer
from app.ground.db import Tx, rows
from app.ledger.audit import audit
from app.ledger.books import lock_books
from app.ledger.close import cancel_intents
from app.ledger.notfound import count_not_found
from policy.states import AttemptState
from policy.words import ErrorClass, Source
from tests.making import (
    NOON,
    Standing,
    attempt_of,
    attempts_of,
    hear,
    intent_of,
    lease,
    make_attempt,
    make_house,
    make_prepared,
    make_route,
    outbox_of,
    prepared_of,
    retry_of,
    reviews_of,
    sample,
    transitions_of,
)

SUBMITTED, UNKNOWN, FAILED, DELIVERED = AttemptState.SUBMITTED, AttemptState.UNKNOWN, AttemptState.FAILED, AttemptState.DELIVERED
LISTED: Final = ["transient", "bounced_late"]
MINUTE: Final = timedelta(minutes=1)

AGAIN, ELSEWHERE, CLOSED = "again", "again elsewhere", "closed with its class"
COLUMNS: Final[dict[str, dict[str, Any]]] = {
    "listed": {},
    "not listed": {"classes": []},
    "maximum reached": {"max_attempts": 1},
    "window over": {"window": "10s"},
    "a close was asked": {},
    "next": {"route": "next"},
    "next, and there is none": {"route": "next"},
    "next, but it was taken": {"route": "next"},
}
FREE: Final = (AGAIN, AGAIN, AGAIN, CLOSED, CLOSED, ELSEWHERE, AGAIN, AGAIN)
CHOSEN: Final = (AGAIN, CLOSED, CLOSED, CLOSED, CLOSED, ELSEWHERE, AGAIN, AGAIN)
NEVER: Final = (CLOSED,) * 8
MATRIX: Final = {
    ErrorClass.NOT_HANDED_OFF: FREE,
    ErrorClass.THROTTLED: FREE,
    ErrorClass.AUTH_CONFIG: FREE,
    ErrorClass.TRANSIENT: CHOSEN,
    ErrorClass.BOUNCED_LATE: CHOSEN,
    ErrorClass.PERMANENT_RECIPIENT: NEVER,
    ErrorClass.PERMANENT_CONTENT: NEVER,
    ErrorClass.OPTED_OUT: NEVER,
    ErrorClass.ARTIFACT_MISMATCH: NEVER,
    ErrorClass.UNCLASSIFIED: NEVER,
}
CELLS: Final = [(c, column, row[n]) for c, row in MATRIX.items() for n, column in enumerate(COLUMNS)]


def rules_for(**retry: object) -> dict[str, Any]:
    """Write the sample policy with other rules for what is tried again."""
    raw = sample()
    raw["categories"]["transactional"]["retry"] |= {"classes": LISTED, **retry}
    return raw


def doubtful(ambiguity: dict[str, Any], *, carrier: str = "twilio", **retry: object) -> dict[str, Any]:
    """Write the makings of a house with these rules for what is in doubt."""
    raw = rules_for(**retry)
    raw["categories"]["transactional"]["ambiguity"] |= ambiguity
    return {"policy": raw, "carrier": carrier}


def cancel(session: Session, standing: Standing) -> None:
    cancel_intents(session, lock_books(session, [standing.intent_id]), [standing.intent_id], cause_id=None, now=NOON)


def outcome(session: Session, standing: Standing) -> str:
    """Say what became of an intent after its first attempt, in the matrix's words."""
    row, intent = outbox_of(session, standing), intent_of(session, standing)
    first, *further = attempts_of(session, standing.intent_id)
    if row is None:
        assert (intent.reason, further) == (first.error_class, [])
        assert intent.closed_at is not None
        return CLOSED
    assert [(a.id, a.state, a.allowed_by) for a in further] == [(row.attempt_id, "queued", "retry")]
    assert intent.closed_at is None
    return AGAIN if further[0].route_id == first.route_id else ELSEWHERE


def breaches(session: Session) -> list[str]:
    return [breach.code for breach in audit(session, since=None, full=True, now=NOON + timedelta(days=1))]


def test_the_matrix_names_every_class() -> None:
    assert set(MATRIX) == set(ErrorClass)


@pytest.mark.parametrize(("error_class", "column", "expected"), CELLS)
def test_a_failure_becomes_what_the_matrix_says(session: Session, error_class: ErrorClass, column: str, expected: str) -> None:
    house = make_house(session, policy=rules_for(**COLUMNS[column]))
    if column != "next, and there is none":
        make_route(session, house.tenant_id, priority=200)
    standing = make_prepared(session, house)
    if column == "a close was asked":
        cancel(session, standing)
    if column == "next, but it was taken":
        hear(session, standing, SUBMITTED, remote_id="SM1")

    hear(session, standing, FAILED, source=Source.ANSWER, error_class=error_class)

    assert outcome(session, standing) == expected
    assert breaches(session) == []


# Another route.


def make_ways(session: Session, **second: Any) -> tuple[Standing, UUID]:
    """Make a house with two routes and an attempt that the first one is about to refuse."""
    house = make_house(session, policy=rules_for(route="next"))
    other = make_route(session, house.tenant_id, **{"priority": 200, **second})
    return make_prepared(session, house), other


def by(route_id: UUID, standing: Standing) -> Standing:
    """Look at an attempt's house from the route it goes by."""
    return replace(standing, house=replace(standing.house, route_id=route_id))


def refuse(session: Session, standing: Standing, error_class: ErrorClass = ErrorClass.TRANSIENT, **report: Any) -> None:
    hear(session, standing, FAILED, **{"source": Source.ANSWER, "error_class": error_class, **report})


def test_another_route_goes_through_the_gate_as_any_attempt_does(session: Session) -> None:
    standing, other = make_ways(session, carrier="kannel")

    refuse(session, standing)
    second = prepared_of(session, by(other, retry_of(session, standing)), now=NOON + MINUTE)

    assert second.handoff is not None
    assert (second.handoff.route.id, second.handoff.route.carrier) == (other, "kannel")
    assert attempt_of(session, second).decision_id is not None


def test_a_throttled_route_is_not_waited_for_where_there_is_another(session: Session) -> None:
    standing, _ = make_ways(session)

    refuse(session, standing, ErrorClass.THROTTLED, retry_after=3600)

    assert outbox_of(session, standing).due_at <= NOON + MINUTE


def test_a_route_that_refuses_our_login_is_stopped_and_gone_around(session: Session) -> None:
    standing, other = make_ways(session)

    refuse(session, standing, ErrorClass.AUTH_CONFIG)

    assert attempts_of(session, standing.intent_id)[-1].route_id == other
    assert [row.route_id for row in rows(session, "SELECT route_id FROM pause")] == [standing.house.route_id]


@pytest.mark.parametrize(
    ("country", "is_way"), [(None, False), ("US", False), ("FR", True)], ids=["everywhere", "in their country", "in another"]
)
def test_a_route_that_is_stopped_for_this_person_is_no_way(session: Session, country: str | None, *, is_way: bool) -> None:
    standing, other = make_ways(session)
    rows(
        session,
        """INSERT INTO pause (id, tenant_id, route_id, country, cause, started_by, started_at)
           SELECT gen_random_uuid(), tenant_id, id, %(country)s, 'operator', 'ann', %(now)s FROM route WHERE id = %(id)s""",
        id=other,
        country=country,
        now=NOON,
    )

    refuse(session, standing)

    assert attempts_of(session, standing.intent_id)[-1].route_id == (other if is_way else standing.house.route_id)


def test_a_route_for_other_countries_is_no_way(session: Session) -> None:
    standing, _ = make_ways(session, countries=["FR"])

    refuse(session, standing)

    assert attempts_of(session, standing.intent_id)[-1].route_id == standing.house.route_id


SENDERS: Final = [
    {"id": "us", "country": "US", "channel": "sms", "category": "transactional", "senders": ["short_code"], "grade": "P"}
]


@pytest.mark.parametrize(("sender_type", "goes_elsewhere"), [("short_code", True), ("alphanumeric", False)])
def test_a_route_whose_sender_the_rules_refuse_is_no_way(session: Session, sender_type: str, *, goes_elsewhere: bool) -> None:
    """Going there would close what the first route could still bring."""
    house = make_house(session, policy=rules_for(route="next") | {"rules": SENDERS}, settings={"sender_type": "short_code"})
    other = make_route(session, house.tenant_id, priority=200, settings={"sender_type": sender_type})
    standing = make_prepared(session, house)

    refuse(session, standing)

    assert (attempts_of(session, standing.intent_id)[-1].route_id == other) is goes_elsewhere


def test_the_decision_at_dispatch_looks_at_the_route_that_the_attempt_goes_by(session: Session) -> None:
    """Not at the best one: its sender is not who will be seen."""
    standing, other = make_ways(session, settings={"sender_type": "alphanumeric"})
    refuse(session, standing)

    second = lease(session, by(other, retry_of(session, standing)), now=NOON + MINUTE)

    evidence = rows(
        session,
        "SELECT d.evidence FROM outbox o JOIN decision d ON d.id = o.decision_id WHERE o.attempt_id = %(id)s",
        id=second.attempt_id,
    )[0].evidence
    assert evidence["facts"]["sender_type"] == "alphanumeric"


# In doubt: every rule of ambiguity.


def left_in_doubt(session: Session, makings: dict[str, Any]) -> Standing:
    return make_attempt(session, make_house(session, **makings), UNKNOWN)


def look_up_twice(session: Session, standing: Standing) -> None:
    for minutes in (11, 12):
        count_not_found(session, [standing.attempt_id], now=NOON + minutes * MINUTE)


def wait(session: Session, after: timedelta) -> int:
    return _answer(Tx(session, NOON + after, 0.0))


def standing_of(session: Session, standing: Standing) -> tuple[list[str | None], list[str], str | None]:
    """Give what allowed each attempt, the open reviews, and the reason of a closed intent."""
    intent = intent_of(session, standing)
    allowed = [a.allowed_by for a in attempts_of(session, standing.intent_id)]
    return allowed, reviews_of(session, standing), intent.reason if intent.closed_at else None


NOT_FOUND: Final = {
    "resend": ([None, "not_found"], [], None),
    "review": ([None], ["not_found"], None),
    "close": ([None], [], "not_found"),
}


@pytest.mark.parametrize(("rule", "expected"), NOT_FOUND.items())
def test_what_a_conclusive_look_up_did_not_find_follows_the_rule(session: Session, rule: str, expected: object) -> None:
    standing = left_in_doubt(session, doubtful({"not_found": rule}))

    look_up_twice(session, standing)

    assert standing_of(session, standing) == expected
    assert breaches(session) == []


@pytest.mark.parametrize("rule", NOT_FOUND)
def test_what_an_inconclusive_look_up_did_not_find_says_nothing(session: Session, rule: str) -> None:
    standing = left_in_doubt(session, doubtful({"not_found": rule}, carrier="kannel"))

    look_up_twice(session, standing)

    assert standing_of(session, standing) == ([None], [], None)


UNHEARD: Final = {
    "resend": ([None, "waited"], [], None),
    "review": ([None], ["not_heard"], None),
    "close": ([None], [], "not_heard"),
}


@pytest.mark.parametrize("carrier", ["twilio", "kannel"])
@pytest.mark.parametrize(("rule", "expected"), UNHEARD.items())
def test_silence_follows_the_rule_when_it_has_lasted(session: Session, rule: str, expected: object, carrier: str) -> None:
    standing = left_in_doubt(session, doubtful({"waited": {"after": "2h", "then": rule}}, carrier=carrier))

    assert wait(session, 119 * MINUTE) == 0
    assert standing_of(session, standing) == ([None], [], None)

    assert (wait(session, 120 * MINUTE), wait(session, 121 * MINUTE)) == (1, 0)
    assert standing_of(session, standing) == expected
    assert breaches(session) == []


def test_without_the_rule_silence_means_nothing(session: Session) -> None:
    standing = left_in_doubt(session, doubtful({}))

    assert wait(session, 23 * 60 * MINUTE) == 0
    assert standing_of(session, standing) == ([None], [], None)


RESEND: Final = {"waited": {"after": "2h", "then": "resend"}}


def a_receipt(session: Session, standing: Standing) -> None:
    """Tell of it in a word that means neither yes nor no."""
    hear(session, standing, UNKNOWN, now=NOON + MINUTE)


def its_id(session: Session, standing: Standing) -> None:
    hear(session, standing, UNKNOWN, source=Source.ANSWER, remote_id="SM1", now=NOON + MINUTE)


def taken_after_all(session: Session, standing: Standing) -> None:
    hear(session, standing, SUBMITTED, source=Source.ANSWER, now=NOON + MINUTE)


def a_call_that_waits(session: Session, standing: Standing) -> None:
    """Keep a receipt that is not observed yet."""
    rows(
        session,
        """INSERT INTO receipt (id, tenant_id, route_id, dedupe_key, attempt_id, reports, status, repeat_count, received_at)
           SELECT gen_random_uuid(), tenant_id, route_id, 'k', id, '[]', 'waiting', 0, %(now)s FROM attempt WHERE id = %(id)s""",
        id=standing.attempt_id,
        now=NOON,
    )


WORDS: Final = [a_receipt, its_id, taken_after_all, a_call_that_waits, cancel]


@pytest.mark.parametrize("word", WORDS, ids=lambda word: word.__name__)
def test_any_word_ends_the_waiting(session: Session, word: Any) -> None:
    standing = left_in_doubt(session, doubtful(RESEND))
    word(session, standing)

    assert wait(session, 3 * 60 * MINUTE) == 0

    assert standing_of(session, standing) == ([None], [], None)
    assert attempt_of(session, standing).unheard_at is None


def test_a_question_that_is_open_is_not_answered_by_silence(session: Session) -> None:
    standing = left_in_doubt(session, doubtful({"not_found": "review", **RESEND}))
    look_up_twice(session, standing)

    wait(session, 3 * 60 * MINUTE)

    assert standing_of(session, standing) == ([None], ["not_found"], None)


@pytest.mark.parametrize(
    ("rule", "carrier", "reason"), [({"not_found": "resend"}, "twilio", "not_found"), (RESEND, "kannel", "not_heard")]
)
def test_a_doubt_is_not_sent_again_past_the_maximum(session: Session, rule: dict[str, Any], carrier: str, reason: str) -> None:
    standing = left_in_doubt(session, doubtful(rule, carrier=carrier, max_attempts=1))

    look_up_twice(session, standing)
    wait(session, 3 * 60 * MINUTE)

    assert standing_of(session, standing) == ([None], [], reason)


def test_silence_after_silence_is_answered_up_to_the_maximum(session: Session) -> None:
    standing = left_in_doubt(session, doubtful(RESEND, max_attempts=2))
    wait(session, 120 * MINUTE)
    second = prepared_of(session, retry_of(session, standing), now=NOON + 121 * MINUTE)
    hear(session, second, UNKNOWN, source=Source.ANSWER, now=NOON + 121 * MINUTE)

    assert (wait(session, 240 * MINUTE), wait(session, 242 * MINUTE)) == (0, 1)

    assert standing_of(session, standing) == ([None, "waited"], [], "not_heard")


def test_the_first_that_turns_up_after_all_holds_the_second_back(session: Session) -> None:
    standing = left_in_doubt(session, doubtful(RESEND))
    wait(session, 120 * MINUTE)

    hear(session, standing, SUBMITTED, remote_id="SM1", now=NOON + 120 * MINUTE)

    row = outbox_of(session, standing)
    assert (row.reason, row.due_at) == ("earlier_attempt", attempt_of(session, standing).horizon_at)


def test_the_second_that_arrives_is_a_question_only_if_the_first_was_taken_after_all(session: Session) -> None:
    standing = left_in_doubt(session, doubtful(RESEND))
    wait(session, 120 * MINUTE)
    second = prepared_of(session, retry_of(session, standing), now=NOON + 121 * MINUTE)

    hear(session, second, DELIVERED, remote_id="SM2", now=NOON + 122 * MINUTE)
    assert reviews_of(session, standing) == []

    hear(session, standing, SUBMITTED, remote_id="SM1", now=NOON + 123 * MINUTE)
    assert reviews_of(session, standing) == ["second_handoff"]


def test_what_is_sent_again_in_doubt_stays_with_its_route(session: Session) -> None:
    """The first one may have been taken: only its own carrier could tell the two apart."""
    makings = doubtful(RESEND, route="next")
    house = make_house(session, **makings)
    make_route(session, house.tenant_id, priority=200)
    standing = make_attempt(session, house, UNKNOWN)

    wait(session, 120 * MINUTE)

    assert {a.route_id for a in attempts_of(session, standing.intent_id)} == {house.route_id}
    assert transitions_of(session, standing)[-1] == (None, "deferred", "retry")


FORGERIES: Final = {
    "before its time": "UPDATE attempt SET created_at = %(soon)s WHERE allowed_by = 'waited'",
    "by no rule": "UPDATE attempt SET allowed_by = 'retry' WHERE allowed_by = 'waited'",
    "by another rule": "UPDATE attempt SET allowed_by = 'not_found' WHERE allowed_by = 'waited'",
    "although it was heard of": """
        INSERT INTO observation (id, tenant_id, event_id, intent_id, attempt_id, source, state, judgement, conflict, observed_at)
        SELECT gen_random_uuid(), tenant_id, event_id, intent_id, id, 'receipt', 'unknown', 'duplicate', false, %(soon)s
        FROM attempt WHERE ordinal = 1""",
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
def test_the_audit_proves_the_rule_that_an_attempt_names(session: Session, forgery: str) -> None:
    left_in_doubt(session, doubtful(RESEND))
    wait(session, 120 * MINUTE)
    assert breaches(session) == []

    rows(session, forgery, soon=NOON + MINUTE)

    assert "after_unknown" in breaches(session)
