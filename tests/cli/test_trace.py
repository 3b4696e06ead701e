"""`daybook trace`: the whole story of an event by any of its ids, with words for each reason and no personal value."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.ids import new_id
from policy.words import CATALOGUE
from tests.cli.conftest import Run
from tests.ledger.lived import NUMBERS, Lived


def plain(text: str) -> str:
    """Put folded lines together again."""
    return " ".join(text.split())


def test_a_delivered_event_is_told_from_acceptance_to_receipt(daybook: Run, lived: Lived) -> None:
    told = daybook("trace", lived.events["delivered"])

    assert told.exit_code == 0
    said = plain(told.output)
    for part in ("queued acceptance", "handed_off answer", "delivered receipt", "sample@2026-11-01", "no objection", "receipts"):
        assert part in said
    assert CATALOGUE["delivered"][0] in said


def test_an_intent_and_an_attempt_lead_to_the_same_story(daybook: Run, lived: Lived, session: Session) -> None:
    event_id = lived.events["bounced"]
    attempt = rows(session, "SELECT id, intent_id FROM attempt WHERE event_id = %(id)s ORDER BY ordinal DESC", id=event_id)[0]

    told = {daybook("trace", wanted).output for wanted in (event_id, attempt.intent_id, attempt.id)}

    assert len(told) == 1
    assert "attempt 2" in plain(told.pop())


def test_each_reason_is_told_in_words(daybook: Run, lived: Lived) -> None:
    reasons = {"unknown": "unreadable_answer", "refused": "permanent_recipient", "suppressed": "opted_out", "cooling": "cooldown"}

    said = {name: plain(daybook("trace", lived.events[name]).output) for name in reasons}

    assert CATALOGUE["permanent_recipient"][0] in said["refused"]
    assert CATALOGUE["opted_out"][0] in said["suppressed"]
    assert CATALOGUE["cooldown"][0] in said["cooling"]
    assert "asked to close after the handoff: cancelled" in plain(daybook("trace", lived.events["close_requested"]).output)


def test_no_personal_value_is_shown(daybook: Run, lived: Lived) -> None:
    told = "".join(daybook("trace", event, *form).output for event in lived.events.values() for form in ((), ("--json",)))

    assert not [number for number in NUMBERS.values() if number.lstrip("+") in told]
    assert "Spin 18:00" not in told


def test_it_can_be_read_by_programs(daybook: Run, lived: Lived) -> None:
    told = json.loads(daybook("trace", lived.events["delivered"], "--json").output)

    assert UUID(told["event"]["id"]) == lived.events["delivered"]
    assert [t["state"] for t in told["transitions"]] == ["queued", "handed_off", "delivered"]
    assert told["transitions"][2]["meaning"] == CATALOGUE["delivered"][0]
    assert "T" in told["event"]["accepted_at"]


@pytest.mark.usefixtures("lived")
def test_an_id_of_nothing_is_no_finding(daybook: Run) -> None:
    unknown, malformed = daybook("trace", new_id()), daybook("trace", "x")

    assert (unknown.exit_code, malformed.exit_code) == (2, 2)
    assert "no event, intent or attempt" in unknown.output
