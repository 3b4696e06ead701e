"""`daybook policy explain`: the whole chain, in words for a customer and without a personal value."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest
from sqlalchemy import Engine

from app.desk.policy.explain import _STATES
from app.desk.policy.sentences import FOLLOWED, LOOKS_AT, REASONS, RULES, SOURCES, provenance_of
from app.flows.reconcile.unheard import answer_silence
from app.ground.db import rows
from app.ground.ids import new_id
from app.people.provenance import Act, Cause
from policy.decide import REFUSING, WAITING
from policy.states import AttemptState, IntentState
from policy.words import CATALOGUE, RULE_OF, AllowedBy, ErrorClass, Lane, Reason, SuppressedBy
from tests.cli.conftest import Run
from tests.ledger.lived import NUMBERS, Lived
from tests.making import (
    NOON,
    Standing,
    claim,
    clock,
    committing,
    make_attempt,
    make_house,
    make_queued,
    make_template,
    prepared_of,
    sample,
)

AT_ELEVEN_PM: Final = datetime(2026, 12, 2, 4, 0, tzinfo=UTC)
EIGHT_IN_THE_MORNING: Final = datetime(2026, 12, 2, 13, 0, tzinfo=UTC)
ALWAYS_ASKED: Final = {"in_force", "all"}


def test_every_reason_and_every_rule_has_words() -> None:
    assert set(REASONS) == set(CATALOGUE)
    assert set(RULES) == set(LOOKS_AT) == {*REFUSING, *WAITING, *ALWAYS_ASKED}
    assert {*Reason, *ErrorClass} - set(REASONS) == set()
    assert set(_STATES) == set(IntentState)
    assert set(SOURCES) == set(SuppressedBy)
    assert set(FOLLOWED) == set(RULE_OF) == set(AllowedBy)


def test_the_words_are_sentences_that_can_be_read_aloud() -> None:
    """Nothing is ever called sent, and no code of ours is spoken."""
    assert [said for said in (*REASONS.values(), *SOURCES.values()) if not re.fullmatch(r"[A-Z][^_{}@]+\.", said)] == []
    assert [said for said in (*REASONS.values(), *FOLLOWED.values()) if not re.fullmatch(r"[A-Z][^_{}@]+\.", said)] == []
    assert [said for said in RULES.values() if not re.fullmatch(r"[A-Z][^_{}@]+\?", said)] == []
    assert [
        said for said in (*REASONS.values(), *FOLLOWED.values(), *RULES.values()) if re.search(r"\b(sent|send)\b", said)
    ] == []


@pytest.fixture
def waiting(fresh_database: Engine) -> Standing:
    """Give a message of 23:00 in New York that was given to the carrier the next morning."""
    with committing(fresh_database) as session:
        house = make_house(session)
        make_template(session, house.tenant_id, name="news", category="operational")
        person = {"ref": "m-1", "sms": "+12015550123", "time_zone": "America/New_York"}
        return make_queued(session, house, now=AT_ELEVEN_PM, template="news", recipient=person)


def test_a_message_that_waited_for_the_morning_is_explained_on_the_persons_clock(
    daybook: Run, waiting: Standing, fresh_database: Engine
) -> None:
    with committing(fresh_database) as session:
        pages = claim(session, waiting.house, lane=Lane.BULK, now=EIGHT_IN_THE_MORNING)
        assert [page.attempt_ids for page in pages] == [(waiting.attempt_id,)]

    by_intent, by_attempt = daybook("policy", "explain", waiting.intent_id), daybook("policy", "explain", waiting.attempt_id)

    assert by_intent.exit_code == 0
    assert by_intent.output == by_attempt.output
    for said in (
        "When the request came, Tue 2026-12-01 23:00:00 in America/New_York (2026-12-02 04:00:00 UTC):",
        "Not yet. Where you may be it was outside the hours at which we may contact you, so we waited.",
        "Not before Wed 2026-12-02 08:00:00 in America/New_York (2026-12-02 13:00:00 UTC).",
        "When it was due, Wed 2026-12-02 08:00:00 in America/New_York",
        "Yes, we may contact you.",
        "The rules: sample@2026-11-01, owner compliance, a sample that nobody has reviewed",
        "Did you leave it open to us to contact you?  [suppression]",
        "Is it a good hour wherever you may be?  [window]",
        "Does the message still matter?  [expiry, asked about Wed 2026-12-02 08:00:00 in America/New_York",
        "Time zone: America/New_York (from: declared).",
    ):
        assert said in by_intent.output


def test_the_attempt_that_left_is_named_under_the_decision_that_admitted_it(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        house = make_house(session)
        standing = prepared_of(session, make_queued(session, house, now=NOON), now=NOON + timedelta(seconds=1))

    told = daybook("policy", "explain", standing.attempt_id)
    read = json.loads(daybook("policy", "explain", standing.attempt_id, "--json").output)

    assert "Attempt 1 was given to the carrier under this decision." in told.output
    (decision,) = read["decisions"]
    assert (decision["admitted"], decision["moment"], decision["policy"]["owner"]) == ([1], "acceptance", "compliance")
    assert decision["policy"]["sha256"]
    assert [rule["rule"] for rule in decision["rules"]][:2] == ["in_force", "country"]
    assert {rule["rule"]: rule["saw"] for rule in decision["rules"]}["country"]["country"] == "US"
    assert decision["decided_at_local"][-1] == "2026-12-01 17:00:00 UTC"


def test_somebody_who_asked_to_be_left_alone_is_told_so(daybook: Run, lived: Lived, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        intent = (
            session.connection()
            .exec_driver_sql("SELECT id FROM intent WHERE event_id = %s", (lived.events["suppressed"],))
            .scalar_one()
        )

    told = daybook("policy", "explain", intent)

    assert "No, we may not contact you. You asked us not to contact you, or your carrier told us so" in told.output


def test_trace_and_explain_say_when_how_and_by_what_somebody_was_suppressed(
    daybook: Run, lived: Lived, fresh_database: Engine
) -> None:
    event_id = lived.events["suppressed"]
    with committing(fresh_database) as session:
        (intent,) = rows(session, "SELECT id FROM intent WHERE event_id = %(event)s", event=event_id)
        (suppression,) = rows(session, "SELECT id, at FROM suppression")

    traced, explained = daybook("trace", event_id), daybook("policy", "explain", intent.id)
    plain = json.loads(daybook("policy", "explain", intent.id, "--json").stdout)

    said = "The service that you use told us that you do not want our messages. That was "
    assert said in " ".join(explained.output.split())
    assert f"({suppression.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC)" in explained.output
    assert said in " ".join(traced.output.split())
    (rule,) = [rule for rule in plain["decisions"][0]["rules"] if rule["rule"] == "suppression"]
    assert [act["id"] for act in rule["suppressions"]] == [str(suppression.id)]


ACT: Final = Act(
    id=UUID(int=1),
    act="suppress",
    channel="sms",
    address=None,
    category=None,
    everything=False,
    source="keyword",
    at=NOON,
    recorded_at=NOON,
    recorded_by="daybook",
    reason=None,
    cause=Cause("inbound", UUID(int=2), None, None),
    stands=True,
    lifted_by=None,
    lifted_at=None,
    lifts=(),
)
REPORT: Final = Cause("report", UUID(int=2), UUID(int=3), "21610")
AN_ACT: Final = {"cause": Cause("action", UUID(int=2), None, None), "recorded_by": "cli:ann", "reason": "told by telephone."}
MONTH: Final = timedelta(days=30)
IDS: Final = [UUID(int=n) for n in range(5)]


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({}, "You wrote to us that you do not want our messages. That was 12-01. It is the text {2}."),
        ({"source": "carrier", "cause": REPORT}, "It is what the carrier said of attempt {3}, with the code 21610."),
        ({"source": "operator"} | AN_ACT, "It was put down by cli:ann, in the action {2}. The reason: told by telephone. It"),
        ({"recorded_at": NOON + MONTH}, "That was 12-01, and we were told so 12-31."),
        ({}, "It is about messages of every category."),
        ({"category": "marketing"}, "It is about messages of the category marketing."),
        ({"everything": True}, "It is about everything, whatever the rules say."),
        ({"lifted_at": NOON + MONTH, "lifted_by": UUID(int=4)}, "It was lifted 12-31, by {4}."),
    ],
)
def test_a_suppression_tells_when_how_and_by_which_message(told: dict[str, Any], said: str) -> None:
    words = provenance_of(replace(ACT, **told), clock=lambda at: f"{at:%m-%d}")

    assert said.format(*IDS) in words


def test_nothing_in_force_is_explained_as_well(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        standing = make_queued(session, make_house(session, policy={}), now=NOON)

    told = daybook("policy", "explain", standing.intent_id)

    assert "No version of our rules was in force." in told.output
    assert "without such rules we contact nobody" in told.output


@pytest.mark.usefixtures("lived")
def test_no_personal_value_is_shown(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        intents = session.connection().exec_driver_sql("SELECT id FROM intent").scalars().all()

    told = "".join(daybook("policy", "explain", intent, *form).output for intent in intents for form in ((), ("--json",)))

    assert len(intents) > len(NUMBERS)
    assert [number for number in NUMBERS.values() if number.lstrip("+") in told] == []
    assert "Spin 18:00" not in told


@pytest.mark.usefixtures("fresh_database")
def test_what_let_a_second_attempt_follow_is_named(daybook: Run, fresh_database: Engine) -> None:
    with committing(fresh_database) as session:
        waits = {"waited": {"after": "2h", "then": "resend"}}
        house = make_house(session, policy=sample(ambiguity={"not_found": "review", "horizon": "review", **waits}))
        standing = make_attempt(session, house, AttemptState.UNKNOWN, now=clock(session) - timedelta(hours=3))
    assert answer_silence() == 1

    explained, traced = daybook("policy", "explain", standing.intent_id), daybook("trace", standing.event_id)
    read = json.loads(daybook("policy", "explain", standing.intent_id, "--json").output)

    why = f"{FOLLOWED[AllowedBy.WAITED]} (sample@2026-11-01: ambiguity.waited)"
    assert f"Attempt 2: {why}" in explained.output
    assert [attempt["why"] for attempt in read["attempts"]] == [None, why]
    assert "attempt 1, by ambiguity.waited of sample@2026-11-01" in " ".join(traced.output.split())


def test_an_id_of_nothing_is_no_finding(daybook: Run) -> None:
    unknown, malformed = daybook("policy", "explain", new_id()), daybook("policy", "explain", "x")

    assert (unknown.exit_code, malformed.exit_code) == (2, 2)
    assert "no intent or attempt has the id" in unknown.output
