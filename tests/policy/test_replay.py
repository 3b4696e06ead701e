from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy.decide import Decision, decide
from policy.document import Basis, Document
from policy.facts import Contacted, Facts, Preference
from policy.replay import answers_of, facts_of, replay, same
from policy.words import Category, NumberType, Reason, Verdict
from tests.policy.making import (
    DAYTIME,
    NOON,
    make_category,
    make_consent,
    make_document,
    make_everything,
    make_facts,
    make_rule,
    make_suppression,
)

HOUR = timedelta(hours=1)

# Evidence as it was written at first: the whole header, every fact, and the moment of each question.
OLD: dict[str, Any] = {
    "asked_at": "2026-12-01T17:00:00Z",
    "policy": {
        "name": "test",
        "version": "1",
        "sha256": make_document().sha256,
        "owner": "compliance",
        "reviewer": None,
        "status": "sample",
        "effective_from": "2026-11-01T00:00:00Z",
        "effective_until": None,
    },
    "facts": {
        "channel": "sms",
        "category": "marketing",
        "country": "US",
        "zones": ["America/New_York"],
        "zone_source": "number",
        "suppressions": [],
        "accepted_at": "2026-12-01T16:55:00Z",
        "expires_at": "2026-12-03T17:00:00Z",
        "not_before": None,
        "cooldown_until": None,
        "cooldown_holder": None,
        "route_available": True,
        "tzdata_version": "2026.6",
        "phonenumbers_version": "9.0.43",
    },
    "rules": [
        {
            "rule": "country",
            "asked_at": "2026-12-01T17:00:00Z",
            "saw": {"country": "US", "blocked": False, "allowed": True},
            "said": {"verdict": "allow", "until": None},
        },
        {
            "rule": "expiry",
            "asked_at": "2026-12-01T17:00:00Z",
            "saw": {"ends_at": "2026-12-03T17:00:00Z"},
            "said": {"verdict": "allow", "until": "2026-12-03T17:00:00Z"},
        },
    ],
}


def make_ruled() -> Document:
    """Make a document with something for every rule to look at, two of them dated."""
    return make_document(
        number_types=["mobile"],
        categories={
            "transactional": make_category(opt_out="named"),
            "marketing": make_category(
                hours=[DAYTIME],
                consent=["express"],
                caps=[{"limit": 1, "window": "6h", "per": "person"}],
                message_cap={"max_segments": 2},
            ),
        },
        rules=[
            make_rule(id="us-fl", subdivision="FL", senders=["short_code"], effective_from="2026-12-01"),
            make_rule(id="us-other", subdivision="*unknown", consent=["night"], effective_until="2026-12-02"),
        ],
    )


DOCUMENT = make_ruled()

hours = st.integers(-72, 72).map(lambda n: NOON + n * HOUR)
maybe = st.none() | hours
consents = st.sampled_from(
    [
        (),
        (make_consent("express"),),
        (make_consent("night"), make_consent(None, withdrawn=True)),
        (make_consent("express", expires_at=NOON),),
    ]
)
facts_in_general = st.builds(
    make_facts,
    category=st.sampled_from([Category.TRANSACTIONAL, Category.MARKETING, Category.OTP]),
    country=st.sampled_from(["US", "FR", "KP", None]),
    zones=st.sampled_from([("America/New_York",), ("Europe/Paris", "America/New_York"), ()]),
    expires_at=maybe,
    not_before=maybe,
    cooldown_until=maybe,
    cooldown_holder=st.sampled_from([None, "class.opening/c-1/m-1"]),
    route_available=st.booleans(),
    suppressions=st.sampled_from([(), (make_suppression(None),), (make_suppression(Category.MARKETING),), (make_everything(),)]),
    consents=consents,
    preferences=st.sampled_from([(), (Preference("p-1", None, wanted=False, at=NOON),)]),
    contacted=st.sampled_from([(), (Contacted(NOON - HOUR, Category.OTP, same_subject=True),)]),
    number_type=st.sampled_from([None, NumberType.MOBILE, NumberType.UAN]),
    subdivisions=st.sampled_from([(), ("FL",), ("NY",)]),
    segment_count=st.sampled_from([None, 1, 3]),
    sender_type=st.sampled_from([None, "short_code"]),
    basis=st.sampled_from([None, Basis.ACCEPTANCE]),
)
documents = st.sampled_from([None, make_document(), DOCUMENT])


def stored(evidence: Any) -> Any:
    return json.loads(json.dumps(evidence, allow_nan=False))


@given(documents, facts_in_general, hours)
def test_stored_evidence_gives_the_facts_and_the_decision_again(document: Document | None, facts: Facts, now: datetime) -> None:
    decision = decide(document, facts, now=now)
    evidence = stored(decision.evidence)

    assert facts_of(evidence) == facts
    assert replay(document, evidence, now=now) == decision
    assert same(replace(decision, evidence=evidence), decision)


@given(st.lists(st.tuples(facts_in_general, hours), min_size=1, max_size=5))
def test_what_was_asked_before_does_not_change_the_answer(asked: list[tuple[Facts, datetime]]) -> None:
    """A document remembers which rules hold, for the next person of the same place."""
    document = make_ruled()

    told = [decide(document, facts, now=now) for facts, now in asked]

    assert told == [decide(make_ruled(), facts, now=now) for facts, now in asked]


@given(documents, facts_in_general, hours)
def test_the_answers_end_in_the_verdict(document: Document | None, facts: Facts, now: datetime) -> None:
    decision = decide(document, facts, now=now)
    answers = answers_of(stored(decision.evidence))

    refused = [answer for answer in answers if answer.verdict is Verdict.SUPPRESS]
    waited = [answer for answer in answers if answer.verdict is Verdict.DEFER]
    verdict = Verdict.SUPPRESS if refused else Verdict.DEFER if waited else Verdict.ALLOW
    last = {answer.reason for answer in (refused or waited)[-1:]} or {None}
    late = {Reason.EXPIRED} if decision.reason is Reason.WOULD_EXPIRE else {decision.reason}
    assert decision.verdict is verdict
    assert last == late


def test_evidence_that_was_written_at_first_is_read_as_it_was_meant() -> None:
    assert facts_of(OLD) == make_facts()
    assert [(each.rule, each.until) for each in answers_of(OLD)] == [("country", None), ("expiry", NOON + 48 * HOUR)]
    assert replay(make_document(), OLD, now=NOON) == decide(make_document(), make_facts(), now=NOON)


def old_allowance(**changes: Any) -> Decision:
    return replace(Decision(Verdict.ALLOW, None, None, NOON + 9 * HOUR, OLD), **changes)


def test_a_decision_that_was_written_at_first_is_held_and_not_written_again() -> None:
    assert same(old_allowance(), decide(make_document(), make_facts(), now=NOON))


@pytest.mark.parametrize(
    ("document", "facts", "before"),
    [
        (make_document(version="2"), make_facts(), old_allowance()),
        (make_document(), make_facts(segment_count=2), old_allowance()),
        (make_document(), make_facts(), old_allowance(valid_until=NOON + HOUR)),
        (make_document(), make_facts(not_before=NOON + HOUR), old_allowance()),
    ],
    ids=["another version", "another fact", "another end", "another verdict"],
)
def test_one_that_tells_something_else_is_written(document: Document, facts: Facts, before: Decision) -> None:
    assert not same(before, decide(document, facts, now=NOON))


def test_evidence_of_an_allowance_is_small() -> None:
    """Millions of them are kept for years."""
    evidence = decide(make_document(), make_facts(category=Category.TRANSACTIONAL), now=NOON).evidence

    assert len(json.dumps(evidence, separators=(",", ":"))) <= 450
