"""Audit: a ledger that really lived is clean, and a planted breach of each invariant is named."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.ground.db import rows
from app.ground.ids import new_id
from app.ledger.audit import CHECKS, Breach, audit, find_mark, keep_mark, snapshot
from tests.conftest import World, wipe
from tests.ledger.lived import Lived, live
from tests.making import clock

HOUR = timedelta(hours=1)

pytestmark = pytest.mark.usefixtures("lived")


@pytest.fixture(scope="module")
def lived(world: World) -> Iterator[Lived]:
    """Give a ledger with a past; each test sees it unchanged."""
    yield live(world.engine)
    wipe(world)


def audited(session: Session, *, full: bool = True) -> list[Breach]:
    return audit(session, since=None if full else clock(session) + 2 * HOUR, full=full, now=clock(session))


def plant(session: Session, statement: str, **params: object) -> None:
    """Write what no code of ours would, past the guards of append-only tables."""
    session.execute(text("SET LOCAL daybook.retention = 'on'"))
    rows(session, statement, **params)


def named(session: Session, code: str, *, full: bool = True) -> list[dict[str, str]]:
    """Give the rows that one check names."""
    return [dict(row) for breach in audited(session, full=full) if breach.code == code for row in breach.rows]


def intent_of(session: Session, lived: Lived, name: str) -> Any:
    return rows(session, "SELECT * FROM intent WHERE event_id = %(id)s", id=lived.events[name])[0]


def attempt_of(session: Session, lived: Lived, name: str) -> Any:
    return rows(session, "SELECT * FROM attempt WHERE event_id = %(id)s ORDER BY ordinal", id=lived.events[name])[0]


def test_a_ledger_that_lived_is_clean(session: Session) -> None:
    assert audited(session) == []


def test_it_is_clean_by_parts_as_well(session: Session) -> None:
    now = clock(session)

    assert audit(session, since=now, full=False, now=now) == []
    assert audit(session, since=now + 2 * HOUR, full=False, now=now) == []


def test_audit_writes_nothing_and_sees_one_snapshot() -> None:
    with snapshot() as (session, now):
        guarded = rows(
            session, "SELECT current_setting('transaction_read_only') AS ro, current_setting('transaction_isolation') AS iso"
        )

        assert (guarded[0].ro, guarded[0].iso) == ("on", "repeatable read")
        assert audit(session, since=None, full=True, now=now) == []


def test_every_check_says_what_it_means() -> None:
    assert len({check.code for check in CHECKS}) == len(CHECKS)
    assert {check.invariant for check in CHECKS} == {1, 2, 3, 4, 5, 6, 7, 8, 9, 12}  # 10 and 11 ask Python as well


def test_the_mark_only_goes_forward(session: Session) -> None:
    now = clock(session)

    assert find_mark(session) is None
    keep_mark(session, at=now)
    keep_mark(session, at=now - HOUR)
    assert find_mark(session) == now


# 1. One key, one event.


def test_a_second_event_of_one_key_is_named(lived: Lived, session: Session) -> None:
    twin = new_id()
    session.execute(text("ALTER TABLE event DROP CONSTRAINT uq_event_tenant_id_key_given_key"))
    columns = [
        c.name for c in rows(session, "SELECT column_name AS name FROM information_schema.columns WHERE table_name = 'event'")
    ]
    others = ", ".join(f'"{c}"' for c in columns if c != "id")
    plant(
        session,
        f"INSERT INTO event (id, {others}) SELECT %(twin)s, {others} FROM event WHERE id = %(id)s",
        twin=twin,
        id=lived.events["unknown"],
    )

    assert {"event_id": str(twin), "other_event_id": str(lived.events["unknown"])} in named(session, "key_twice")
    assert named(session, "event_dropped") == [{"event_id": str(twin)}]
    assert named(session, "guard_missing") == [{"guard": "uq_event_tenant_id_key_given_key"}]


def test_a_key_that_does_not_follow_from_the_event_is_named(lived: Lived, session: Session) -> None:
    plant(session, "UPDATE event SET key = 'class.opening/c-1/somebody' WHERE id = %(id)s", id=lived.events["unknown"])

    assert named(session, "key_not_derived") == [{"event_id": str(lived.events["unknown"])}]


# 2. One intent per business key and channel.


def test_a_key_given_up_after_a_handoff_is_named(lived: Lived, session: Session) -> None:
    intent, attempt = intent_of(session, lived, "delivered"), attempt_of(session, lived, "delivered")
    plant(session, "UPDATE intent SET holds_key = false WHERE id = %(id)s", id=intent.id)

    assert named(session, "freed_after_handoff") == [{"intent_id": str(intent.id), "attempt_id": str(attempt.id)}]


def test_a_key_kept_after_nothing_was_handed_off_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "suppressed")
    plant(session, "UPDATE intent SET holds_key = true WHERE id = %(id)s", id=intent.id)

    assert named(session, "kept_without_handoff") == [{"intent_id": str(intent.id)}]


def test_two_holders_of_one_key_are_named(lived: Lived, session: Session) -> None:
    intent, other = intent_of(session, lived, "cancelled"), intent_of(session, lived, "joined")
    session.execute(text("DROP INDEX uq_intent_holder"))
    plant(session, "UPDATE intent SET holds_key = true WHERE id = %(id)s", id=intent.id)

    assert {"intent_id": str(intent.id), "other_intent_id": str(other.id)} in named(session, "two_holders")
    assert [row["intent_id"] for row in named(session, "joined_and_contacting")] == [str(other.id)]


def test_an_event_that_joined_and_was_forgotten_is_named(lived: Lived, session: Session) -> None:
    cancelled, joined = intent_of(session, lived, "cancelled"), intent_of(session, lived, "joined")
    plant(session, "UPDATE transition SET at = at - interval '1 day' WHERE intent_id = %(id)s", id=joined.id)

    assert named(session, "not_promoted") == [{"event_id": str(joined.event_id), "intent_id": str(cancelled.id)}]


def test_what_a_cancellation_found_and_is_open_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "waiting")
    plant(session, "UPDATE cancelled SET event_id = %(id)s WHERE found = 'cancelled'", id=intent.event_id)

    assert [row["intent_id"] for row in named(session, "left_open")] == [str(intent.id)]


def test_what_left_and_was_not_asked_to_close_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "close_requested")
    plant(session, "UPDATE cancelled SET event_id = %(id)s, found = 'handed_off' WHERE found = 'cancelled'", id=intent.event_id)
    assert named(session, "left_open") == []

    plant(session, "UPDATE intent SET close_requested_at = NULL WHERE id = %(id)s", id=intent.id)

    assert [row["intent_id"] for row in named(session, "left_open")] == [str(intent.id)]


def test_a_joined_event_that_was_called_off_and_followed_is_named(lived: Lived, session: Session) -> None:
    called_off = intent_of(session, lived, "called_off")
    plant(session, "UPDATE intent SET event_id = %(id)s WHERE id = %(own)s", id=lived.events["joined_off"], own=called_off.id)

    assert [row["intent_id"] for row in named(session, "followed")] == [str(called_off.id)]


def test_a_cancellation_that_does_not_add_up_is_named(lived: Lived, session: Session) -> None:
    assert lived.events["called_off"]
    plant(session, "UPDATE cancellation SET cancelled_count = cancelled_count + 1")

    assert len(named(session, "miscounted")) == 1


def test_an_event_that_was_cancelled_while_it_waited_is_not_missed(lived: Lived, session: Session) -> None:
    joined = intent_of(session, lived, "joined")
    plant(session, "UPDATE transition SET at = at - interval '1 day' WHERE intent_id = %(id)s", id=joined.id)
    record_action(
        session,
        tenant_id=joined.tenant_id,
        actor="ann",
        verb="cancel",
        subject={"event_id": str(joined.event_id)},
        reason="",
        now=clock(session),
    )

    assert named(session, "not_promoted") == []


# 3. Write before call.


def test_an_answer_to_a_call_that_nothing_was_written_before_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    plant(session, "UPDATE attempt SET prepared_at = NULL WHERE id = %(id)s", id=attempt.id)

    assert [row["attempt_id"] for row in named(session, "answered_unprepared")] == [str(attempt.id)]


def test_an_attempt_prepared_after_it_was_heard_of_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "unknown")
    plant(session, "UPDATE attempt SET prepared_at = prepared_at + interval '1 minute' WHERE id = %(id)s", id=attempt.id)

    assert [row["attempt_id"] for row in named(session, "heard_before_prepared")] == [str(attempt.id)]


@pytest.mark.parametrize(
    "wrong",
    ["verdict = 'defer'", "valid_until = decided_at - interval '1 minute'", "decided_at = decided_at + interval '1 minute'"],
)
def test_an_attempt_that_nothing_admitted_is_named(lived: Lived, session: Session, wrong: str) -> None:
    attempt = attempt_of(session, lived, "submitted")
    plant(session, f"UPDATE decision SET {wrong} WHERE id = %(id)s", id=attempt.decision_id)

    assert named(session, "not_admitted") == [{"attempt_id": str(attempt.id), "decision_id": str(attempt.decision_id)}]


# 4. At most one handoff per attempt.


COPY_OBSERVATION = """
INSERT INTO observation SELECT (jsonb_populate_record(o, jsonb_build_object('id', %(new)s::text) || %(changes)s::jsonb)).*
FROM observation o WHERE o.attempt_id = %(attempt)s AND o.source = 'answer'
"""


def test_two_answers_for_one_attempt_are_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "submitted")
    changes = '{"remote_id": "SM00000000000000000000000000000000", "judgement": "duplicate", "conflict": true}'
    plant(session, COPY_OBSERVATION, new=new_id(), changes=changes, attempt=attempt.id)

    assert named(session, "answered_twice") == [{"attempt_id": str(attempt.id)}]


def test_an_id_that_two_attempts_were_told_of_is_named(lived: Lived, session: Session) -> None:
    attempt, other = attempt_of(session, lived, "submitted"), attempt_of(session, lived, "delivered")
    held = rows(session, "SELECT remote_id FROM remote_id WHERE attempt_id = %(id)s", id=other.id)[0].remote_id
    plant(session, "UPDATE observation SET remote_id = %(held)s WHERE attempt_id = %(id)s", held=held, id=attempt.id)

    found = named(session, "remote_id_shared")

    assert [(row["attempt_id"], row["other_attempt_id"]) for row in found] == [(str(attempt.id), str(other.id))]


def test_a_handed_off_attempt_that_is_still_due_is_named(lived: Lived, session: Session) -> None:
    attempt, waiting = attempt_of(session, lived, "submitted"), attempt_of(session, lived, "waiting")
    plant(session, "UPDATE outbox SET attempt_id = %(id)s WHERE attempt_id = %(waiting)s", id=attempt.id, waiting=waiting.id)

    assert named(session, "due_after_handoff") == [{"attempt_id": str(attempt.id)}]
    assert named(session, "queued_not_due") == [{"attempt_id": str(waiting.id)}]


# 5. State only climbs.


def test_a_state_that_nobody_reported_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "submitted")
    plant(session, "UPDATE attempt SET state = 'delivered', next_check_at = NULL WHERE id = %(id)s", id=attempt.id)

    found = {breach.code: [row.get("attempt_id") for row in breach.rows] for breach in audited(session)}

    assert found["not_the_join"] == found["last_transition"] == [str(attempt.id)]
    assert "projection" in found


def test_a_transition_that_goes_back_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    back = "UPDATE transition SET state = 'handed_off' WHERE attempt_id = %(id)s AND state = 'delivered'"
    plant(session, back, id=attempt.id)

    assert [row["attempt_id"] for row in named(session, "went_back")] == [str(attempt.id)]


def test_a_report_without_its_transition_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    plant(session, "UPDATE transition SET cause_id = NULL WHERE attempt_id = %(id)s AND state = 'delivered'", id=attempt.id)

    assert [row["attempt_id"] for row in named(session, "applied_once")] == [str(attempt.id)]


# 6. Closing touches future work only.


def test_an_attempt_closed_after_its_handoff_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "close_requested")
    plant(session, "UPDATE attempt SET state = 'cancelled', next_check_at = NULL WHERE id = %(id)s", id=attempt.id)

    assert named(session, "closed_after_handoff") == [{"attempt_id": str(attempt.id)}]


def test_an_attempt_made_after_the_close_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "throttled")
    plant(session, "UPDATE intent SET close_requested_at = accepted_at - interval '2 minutes' WHERE id = %(id)s", id=intent.id)

    assert {row["intent_id"] for row in named(session, "after_close")} == {str(intent.id)}


# 7. Unknown is no evidence of failure.


FORGET_FAILURE = "UPDATE observation SET state = 'unknown' WHERE attempt_id = %(id)s"


def test_an_attempt_that_follows_one_in_doubt_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "throttled")
    plant(session, FORGET_FAILURE, id=attempt.id)

    assert [row["attempt_before_id"] for row in named(session, "after_unknown")] == [str(attempt.id)]


def test_a_person_may_allow_another_attempt(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "throttled")
    plant(session, FORGET_FAILURE, id=attempt.id)
    plant(
        session,
        """INSERT INTO operator_action (id, tenant_id, actor, verb, subject, reason, at)
           SELECT %(new)s, tenant_id, 'ann', 'resend', jsonb_build_object('attempt_id', id::text), 'asked', created_at
           FROM attempt WHERE id = %(id)s""",
        new=new_id(),
        id=attempt.id,
    )

    assert named(session, "after_unknown") == []


# 8. Nothing is silently dropped.


def test_an_intent_that_nobody_looks_after_is_named(lived: Lived, session: Session) -> None:
    intent, attempt = intent_of(session, lived, "waiting"), attempt_of(session, lived, "waiting")
    plant(session, "DELETE FROM outbox WHERE intent_id = %(id)s", id=intent.id)

    assert named(session, "open_nowhere", full=False) == [{"intent_id": str(intent.id)}]
    assert named(session, "queued_not_due", full=False) == [{"attempt_id": str(attempt.id)}]


def test_a_parked_row_without_a_question_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "waiting")
    plant(session, "UPDATE outbox SET due_at = 'infinity' WHERE attempt_id = %(id)s", id=attempt.id)

    assert [row["attempt_id"] for row in named(session, "parked_and_due", full=False)] == [str(attempt.id)]


def test_an_attempt_in_doubt_that_nobody_asks_about_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "unknown")
    plant(session, "UPDATE attempt SET next_check_at = NULL WHERE id = %(id)s", id=attempt.id)

    assert named(session, "next_check", full=False) == [{"attempt_id": str(attempt.id)}]


def test_a_row_that_waits_without_saying_why_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "waiting")
    plant(session, "UPDATE outbox SET reason = NULL WHERE attempt_id = %(id)s", id=attempt.id)

    assert named(session, "waits_without_reason") == [{"attempt_id": str(attempt.id)}]


def test_a_receipt_whose_report_is_missing_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    plant(session, "DELETE FROM observation WHERE attempt_id = %(id)s AND source = 'receipt'", id=attempt.id)

    assert len(named(session, "receipt_lost")) == 2


# 9. Every contact can be explained.


def test_a_policy_that_was_rewritten_is_named(session: Session) -> None:
    plant(session, "UPDATE policy_version SET owner = 'somebody else'")
    version = rows(session, "SELECT id FROM policy_version")[0]

    assert named(session, "policy_rewritten") == [{"policy_version_id": str(version.id)}]


def test_a_handoff_whose_evidence_names_another_policy_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    change = "UPDATE decision SET evidence = jsonb_set(evidence, '{policy,sha256}', '\"0\"') WHERE id = %(id)s"
    plant(session, change, id=attempt.decision_id)

    assert [row["attempt_id"] for row in named(session, "unexplained")] == [str(attempt.id)]


def test_a_decision_that_its_evidence_does_not_give_again_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    change = "UPDATE decision SET evidence = jsonb_set(evidence, '{facts,country}', '\"KP\"') WHERE id = %(id)s"
    plant(session, change, id=attempt.decision_id)

    assert named(session, "unfaithful") == [{"decision_id": str(attempt.decision_id)}]


@pytest.mark.parametrize(
    ("table", "code"),
    [
        ("route", "route_missing"),
        ("template_version", "template_missing"),
        ("policy_version", "policy_missing"),
        ("contact", "person_missing"),
    ],
)
def test_rules_that_are_gone_are_named(session: Session, table: str, code: str) -> None:
    plant(session, f"DELETE FROM {table}")

    assert named(session, code) != []


# 10. Nobody is contacted inside a cooldown.


def test_two_handoffs_inside_one_cooldown_are_named(lived: Lived, session: Session) -> None:
    first, second = attempt_of(session, lived, "delivered"), attempt_of(session, lived, "submitted")
    gate = intent_of(session, lived, "delivered").gate_hash
    plant(session, "UPDATE intent SET gate_hash = %(gate)s WHERE id = %(id)s", gate=gate, id=second.intent_id)

    found = named(session, "inside_cooldown")

    assert {row[name] for row in found for name in row} == {str(first.id), str(second.id)}


def test_a_gate_that_forgot_its_slot_is_named(lived: Lived, session: Session) -> None:
    attempt = attempt_of(session, lived, "delivered")
    plant(
        session,
        "UPDATE gate SET slots = '{}' WHERE address_hash = %(gate)s",
        gate=intent_of(session, lived, "delivered").gate_hash,
    )

    assert named(session, "slot_lost") == [{"attempt_id": str(attempt.id)}]


def test_a_handoff_after_a_stop_is_named(lived: Lived, session: Session) -> None:
    attempt, intent = attempt_of(session, lived, "delivered"), intent_of(session, lived, "delivered")
    plant(
        session,
        """INSERT INTO suppression (id, tenant_id, address_hash, hash_key_id, channel, act, source, at)
           VALUES (%(new)s, %(tenant)s, %(gate)s, 'k', 'sms', 'suppress', 'keyword', %(at)s)""",
        new=new_id(),
        tenant=intent.tenant_id,
        gate=intent.gate_hash,
        at=attempt.prepared_at - HOUR,
    )

    assert [row["attempt_id"] for row in named(session, "after_stop")] == [str(attempt.id)]


def test_a_stop_that_the_version_let_the_text_pass_is_no_breach(lived: Lived, session: Session) -> None:
    """Whether the decision judged rightly what it saw is what `unfaithful` asks."""
    attempt, intent = attempt_of(session, lived, "delivered"), intent_of(session, lived, "delivered")
    stopped = new_id()
    plant(
        session,
        """INSERT INTO suppression (id, tenant_id, address_hash, hash_key_id, channel, act, source, at)
           VALUES (%(new)s, %(tenant)s, %(gate)s, 'k', 'sms', 'suppress', 'keyword', %(at)s)""",
        new=stopped,
        tenant=intent.tenant_id,
        gate=intent.gate_hash,
        at=attempt.prepared_at - HOUR,
    )
    seen = [{"id": str(stopped), "category": None, "source": "keyword", "at": "2026-12-01T16:00:00Z"}]
    plant(
        session,
        "UPDATE decision SET evidence = jsonb_set(evidence, '{facts,suppressions}', %(seen)s) WHERE id = %(id)s",
        seen=Jsonb(seen),
        id=attempt.decision_id,
    )

    assert named(session, "after_stop") == []


def test_a_lift_of_nothing_is_named(lived: Lived, session: Session) -> None:
    intent, lifted, made_up = intent_of(session, lived, "delivered"), new_id(), new_id()
    plant(
        session,
        """INSERT INTO suppression (id, tenant_id, address_hash, hash_key_id, channel, act, lifts, source, at)
           VALUES (%(new)s, %(tenant)s, %(gate)s, 'k', 'sms', 'lift', %(lifts)s, 'keyword', now())""",
        new=lifted,
        tenant=intent.tenant_id,
        gate=intent.gate_hash,
        lifts=[made_up],
    )

    assert named(session, "lifts_nothing") == [{"suppression_id": str(lifted), "lifted_id": str(made_up)}]


# 11. Personal values are in the vault and nowhere else.


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("contact", "sealed_address"),
        ("event", "payload"),
        ("receipt_raw", "sealed_call"),
        ("refused_receipt", "sealed_call"),
        ("inlet", "sealed_request"),
        ("inbound", "sealed_text"),
        ("inbound_raw", "sealed_call"),
    ],
)
def test_a_value_that_does_not_open_is_named(session: Session, table: str, column: str) -> None:
    plant(session, f"UPDATE {table} SET {column} = 'gAAAAA' WHERE {column} IS NOT NULL")

    assert {row["table"] for row in named(session, "does_not_open", full=False)} == {table}


def test_a_person_who_was_erased_is_no_damage(session: Session) -> None:
    plant(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = clock_timestamp()")

    assert named(session, "does_not_open") == []


@pytest.mark.parametrize("leak", ["+447700900123", "%2B447700900123", "ann@example.test", "ann%40example.test"])
@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("event", "UPDATE event SET metadata = jsonb_build_object('note', %(leak)s::text) WHERE id = %(id)s"),
        ("observation", "UPDATE observation SET error_code = %(leak)s WHERE event_id = %(id)s"),
        (
            "decision",
            "UPDATE decision SET evidence = evidence || jsonb_build_object('to', %(leak)s::text) WHERE event_id = %(id)s",
        ),
    ],
)
def test_an_address_in_the_ledger_is_named(lived: Lived, session: Session, table: str, statement: str, leak: str) -> None:
    plant(session, statement, leak=f"to {leak}", id=lived.events["unknown"])

    assert named(session, f"personal_in_{table}", full=False) != []


def test_a_contact_under_a_wrong_hash_is_named(lived: Lived, session: Session) -> None:
    contact: UUID = intent_of(session, lived, "unknown").contact_id
    plant(session, "UPDATE contact SET address_hash = decode('00', 'hex') WHERE id = %(id)s", id=contact)

    assert named(session, "hash_differs") == [{"table": "contact", "row_id": str(contact)}]


# 12. History has no gaps.


def test_a_transition_that_no_reader_sees_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "delivered")
    plant(
        session,
        "DELETE FROM feed WHERE transition_id = (SELECT id FROM transition WHERE intent_id = %(id)s AND n = 2)",
        id=intent.id,
    )

    assert [row["intent_id"] for row in named(session, "not_in_feed")] == [str(intent.id)]
    assert [row["intent_id"] for row in named(session, "out_of_order")] == [str(intent.id)]


def test_a_transition_that_is_missing_is_named(lived: Lived, session: Session) -> None:
    intent = intent_of(session, lived, "delivered")
    plant(session, "DELETE FROM transition WHERE intent_id = %(id)s AND n = 2", id=intent.id)

    assert named(session, "gap_in_n") == [{"intent_id": str(intent.id)}]


def test_a_guard_that_was_switched_off_is_named(session: Session) -> None:
    session.execute(text("ALTER TABLE transition DISABLE TRIGGER keep_rows"))

    assert named(session, "guard_missing") == [{"guard": "trigger on transition"}]


def test_rows_are_counted_beyond_those_that_are_named(session: Session) -> None:
    plant(session, "UPDATE transition SET cause_id = NULL")
    breach = next(b for b in audited(session) if b.code == "applied_once")
    applied = rows(session, "SELECT count(*) AS n FROM observation WHERE judgement = 'applied'")[0].n

    assert (breach.count, len(breach.rows)) == (applied, min(applied, 20))
