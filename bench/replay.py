"""What a counterpart writes after acceptance: the same updates, inserts and deletes, page by page and window by window."""

# ruff: noqa: S608 - statements made of our own names and of rows that our own code wrote

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bench.house import House, sql
from bench.tape import Tape, literal, series

WINDOW: Final = 64
"""As many attempts as a worker prepares in one transaction (DAYBOOK_WINDOW's default)."""
# A window's plan must be the one that reads by index, whatever the statistics of a fresh database say.
PLANS: Final = "-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"


def load_accepted(house: House, tape: Tape, count: int) -> None:
    """Put accepted events into the scratch database, set-based, with their first transition in the feed."""
    _run(house, [*tape.insertions("accepted", "1", str(count)), *sequenced(tape, "accepted", "1", str(count))])


def load_handed(house: House, tape: Tape, count: int) -> None:
    """Put events into the scratch database that were handed off."""
    everyone = ("1", str(count))
    _run(house, tape.insertions("accepted", *everyone))
    _run(house, [*prepared(tape, *everyone), *answered(tape, *everyone)])


def _run(house: House, statements: Iterable[str]) -> None:
    with house.connect(scratch=True) as connection, connection.transaction():
        for statement in statements:
            connection.execute(sql(statement))
    with house.connect(scratch=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


def decided(tape: Tape, lo: str, hi: str) -> list[str]:
    """Note the decisions of a page as held, and lease it."""
    who = f"(SELECT {tape.id('attempt')} AS id, {tape.id('decision')} AS decision_id FROM {series(lo, hi)}) AS w"
    return [
        (
            "UPDATE outbox o SET decision_id = w.decision_id, held_at = now(), gate_seen_at = NULL "
            f"FROM {who} WHERE o.attempt_id = w.id"
        ),
        (
            "UPDATE outbox o SET lease = 1, leased_until = now() + interval '60 s', reason = NULL, lost_lease_count = 0 "
            f"FROM {who} WHERE o.attempt_id = w.id"
        ),
    ]


def prepared(tape: Tape, lo: str, hi: str) -> list[str]:
    """Take the gates' slots, begin the attempts, take them out of the outbox."""
    numbers = series(lo, hi)
    attempts = f"(SELECT {tape.id('attempt')} AS id, {tape.id('decision')} AS decision_id FROM {numbers}) AS w"
    gate = tape.rows["handed", "gate"][0]
    # As an array: joined, a plan made while the table was empty would read all gates of the tenant for each window.
    hashes = f"ARRAY(SELECT sha256(int8send(n)) FROM {numbers})"
    return [
        *[statement for statement in tape.insertions("handed", lo, hi) if statement.startswith("INSERT INTO gate ")],
        (
            "UPDATE attempt a SET state = 'prepared', decision_id = w.decision_id, lease = 1, prepared_at = now(), "
            f"next_check_at = now() + interval '25 s', horizon_at = now() + interval '24 h' FROM {attempts} WHERE a.id = w.id"
        ),
        (
            f"UPDATE gate SET slots = {literal(gate['slots'] or '{}')}::jsonb, changed_at = now() "
            f"WHERE tenant_id = {literal(gate['tenant_id'] or '')}::uuid AND address_hash = ANY({hashes})"
        ),
        f"DELETE FROM outbox o USING {attempts} WHERE o.attempt_id = w.id",
    ]


def answered(tape: Tape, lo: str, hi: str) -> list[str]:
    """Keep the carrier's answers, and what they change."""
    numbers = series(lo, hi)
    return [
        *[statement for statement in tape.insertions("handed", lo, hi) if not statement.startswith("INSERT INTO gate ")],
        (
            "UPDATE attempt a SET state = 'submitted', taken = true, next_check_at = now() + interval '15 s', "
            f"answered_at = now() FROM (SELECT {tape.id('attempt')} AS id FROM {numbers}) AS w WHERE a.id = w.id"
        ),
        (
            "UPDATE intent i SET transition_count = 2, state = 'in_flight', reason = NULL, next_at = NULL "
            f"FROM (SELECT {tape.id('intent')} AS id FROM {numbers}) AS w WHERE i.id = w.id"
        ),
    ]


def sequenced(tape: Tape, happened: str, lo: str, hi: str) -> list[str]:
    """Move transitions from the pending ones into the feed."""
    (transition,) = tape.ids(happened, "transition")
    moved = f"(SELECT {transition} AS id FROM {series(lo, hi)}) AS w"
    found = "SELECT p.transition_id, p.intent_id, p.tenant_id, p.recipient_ref FROM feed_pending p"
    return [
        f"INSERT INTO feed (transition_id, intent_id, tenant_id, recipient_ref) {found} JOIN {moved} ON p.transition_id = w.id",
        f"DELETE FROM feed_pending p USING {moved} WHERE p.transition_id = w.id",
    ]


def kept(tape: Tape, n: str) -> list[str]:
    """Keep a receipt and its raw call."""
    return [s for s in tape.insertions("settled", n, n) if s.startswith("INSERT INTO receipt")]


def delivered(tape: Tape, n: str) -> list[str]:
    """Observe a kept receipt: the attempt is delivered, the intent closed."""
    numbers = series(n, n)
    receipt = tape.ids("settled", "receipt")[0]
    intents = f"(SELECT {tape.id('intent')} AS id FROM {numbers}) AS w"
    return [
        *[s for s in tape.insertions("settled", n, n) if not s.startswith("INSERT INTO receipt")],
        (
            "UPDATE attempt a SET state = 'delivered', next_check_at = NULL, ended_at = now() "
            f"FROM (SELECT {tape.id('attempt')} AS id FROM {numbers}) AS w WHERE a.id = w.id"
        ),
        f"UPDATE intent i SET transition_count = 3, state = 'delivered', reason = 'delivered' FROM {intents} WHERE i.id = w.id",
        f"UPDATE intent i SET closed_at = now(), holds_key = true FROM {intents} WHERE i.id = w.id",
        (
            "UPDATE receipt r SET status = 'observed', observed_at = now() "
            f"FROM (SELECT {receipt} AS id FROM {numbers}) AS w WHERE r.id = w.id"
        ),
    ]


def transaction(statements: Iterable[str]) -> str:
    """Write one transaction for pgbench, all of it in one round trip."""
    return "\n".join(["\\startpipeline", "BEGIN;", *(f"{s};" for s in statements), "COMMIT;", "\\endpipeline"])
