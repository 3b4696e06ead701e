"""A past: as many closed attempts as wanted, filled set-based from the rows that one real event left.

Bytes, columns and indexes are the application's own; what must differ between events becomes an expression
of a number `n`. Twenty events belong to each person, spread over twenty thousand. Only those tables are
filled that reading and claiming touch: raw calls and observations are left out, and the evidence of old
decisions, which nothing reads, is empty.
"""

# ruff: noqa: S608 - statements made of our own names and of rows that our own code wrote

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from psycopg import Connection

from app.ground.errors import DaybookError
from bench.house import House, sql
from bench.tape import Row, Tape, literal, read_rows
from bench.town import BULK, Town, accept_all, hand_off_all

FILLED: Final = (
    "person_key", "contact", "gate", "event", "intent", "decision", "attempt", "transition", "feed", "remote_id", "receipt",
    "outbox", "feed_pending",
)  # fmt: skip
# A table that refers to another must become unlogged before it, and logged after it.
UNLOGGED: Final = ("joining", "attempt", "intent", "event", *(t for t in FILLED if t not in {"attempt", "intent", "event"}))

SIDE_BY_SIDE: Final = 2
"""Tables that are filled at once."""
BLOCK: Final = 20_000
PEOPLE: Final = 1_000
"""Per block: each has twenty events in it."""
PERSON: Final = f"((n / {BLOCK}) * {PEOPLE} + n % {PEOPLE})"
# Ten million events in not quite a year.
AT: Final = "(now() - interval '400 days' + n * interval '3 s')"
# One in twenty failed for good, one in a hundred was never heard of again.
STATE: Final = "CASE WHEN n % 100 = 7 THEN 'unknown' WHEN n % 20 = 3 THEN 'failed' ELSE 'delivered' END"
REASON: Final = "CASE WHEN n % 100 = 7 THEN 'no_receipt' WHEN n % 20 = 3 THEN 'permanent_recipient' ELSE 'delivered' END"

INDEXES: Final = """
SELECT i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname, pg_get_constraintdef(c.oid)
FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u')
WHERE i.indrelid = %s::regclass AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.conindid = i.indexrelid AND f.contype = 'f')
ORDER BY 1
"""

CURSOR: Final = (
    "SELECT s.epoch || '.' || (SELECT min(position) + (max(position) - min(position)) * 2 / 3 FROM feed) FROM feed_state s"
)

SCHEMA: Final = """
SELECT i.indrelid::regclass::text, i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid), i.indisprimary, r.relpersistence
FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid WHERE r.relnamespace = 'public'::regnamespace ORDER BY 1, 2
"""

# What handing off and hearing leave behind, all at once: whatever is open is closed, as the verbs close it.
CLOSINGS: Final = (
    "DELETE FROM outbox",
    "DELETE FROM feed_pending",
    (
        "UPDATE attempt SET state = 'delivered', taken = true, next_check_at = NULL, ended_at = now() "
        "WHERE next_check_at IS NOT NULL OR state = 'queued'"
    ),
    (
        "UPDATE intent SET state = 'delivered', reason = 'delivered', next_at = NULL, transition_count = 3, closed_at = now() "
        "WHERE closed_at IS NULL"
    ),
    "UPDATE receipt SET status = 'observed', observed_at = now() WHERE status IN ('waiting', 'unmatched')",
)


class NotAsMigrated(DaybookError):
    """The figure changed what it measures."""


@dataclass(frozen=True, slots=True)
class Open:
    """What live rows look like: until when they wait, as expressions of `n`."""

    due_at: str = "now() - interval '2 s'"
    """When the attempt is due in the outbox; NULL: it is not there."""
    next_check_at: str = "NULL"
    """When the carrier is asked; NULL: it was not handed off."""
    state: str = "'queued'"
    expires_at: str = "now() + interval '1 day'"
    received_at: str = "NULL"
    """When a receipt came that waits to be observed; NULL: none did."""


@dataclass(slots=True)
class Past:
    """The tables of one house, and how far they are filled."""

    house: House
    rows: Mapping[str, Row]
    """One recorded row of each table, as a handed-off event has it."""
    count: int = 0

    def fill(self, count: int) -> None:
        """Add closed attempts until there are so many, then analyse and vacuum."""
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            list(pool.map(lambda table: self._fill_table(table, self.count + 1, count), FILLED))
        with self.house.connect() as connection:
            connection.execute("VACUUM ANALYZE")
        self.count = max(self.count, count)

    def _fill_table(self, table: str, lo: int, hi: int) -> None:
        """Add a table's rows, and build its indexes when they are there."""
        with self._filling() as connection:
            connection.execute("SET maintenance_work_mem = '512MB'")
            indexes = _indexes(connection, table)
            for drop, _ in indexes:
                connection.execute(sql(drop))
            for statement in self._closed(table, lo, hi):
                connection.execute(sql(statement))
            for _, create in indexes:
                connection.execute(sql(create))

    def add_open(self, count: int, how: Open) -> tuple[int, int]:
        """Add attempts that are not closed; give the first and last number."""
        lo, hi = self.count + 1, self.count + count
        with self._filling() as connection:
            for table in FILLED:
                for statement in self._open(table, lo, hi, how):
                    connection.execute(sql(statement))
        self.count = hi
        return lo, hi

    def close_all(self) -> None:
        """Close whatever is open, set-based."""
        with self.house.connect() as connection:
            for statement in CLOSINGS:
                connection.execute(sql(statement))

    @contextmanager
    def _filling(self) -> Iterator[Connection[Any]]:
        with self.house.connect() as connection:
            # Every row has what it refers to. Looking that up row by row takes longer than all the rest.
            connection.execute("SET session_replication_role = replica")
            yield connection

    def event_id(self, n: int) -> str:
        """Give an event's id."""
        return f"{1:08x}-0000-7000-8000-{n:012x}"

    def person(self, n: int) -> str:
        """Give the ref of the person whom an event belongs to."""
        return f"m-{n // BLOCK * PEOPLE + n % PEOPLE}"

    def cursor(self) -> str:
        """Give the history's cursor where two thirds are read."""
        with self.house.connect() as connection:
            found = connection.execute(CURSOR).fetchone()
        return str(found[0]) if found else ""

    def _insert(self, table: str, values: Mapping[str, str], source: str) -> str:
        columns = {**{c: "NULL" if v is None else literal(v) for c, v in self.rows[table].items()}, **values}
        if table == "receipt":  # what was read out of it names the attempt's remote id
            told = str(json.loads(str(self.rows[table]["reports"]))[0]["remote_id"])
            columns["reports"] = f"replace({columns['reports']}, {literal(told)}, {_random('r')})::jsonb"
        return f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM {source}"

    def _people(self, table: str, lo: int, hi: int) -> str:
        """Insert the people whom these numbers belong to and who are not there yet."""
        new = {"contact": own_id(8, "p"), "person_key": own_id(9, "p"), "gate": "sha256(int8send(p))"}[table]
        column = "address_hash" if table == "gate" else "id"
        people = (
            f"(SELECT DISTINCT {PERSON} AS p FROM generate_series({lo}::bigint, {hi}::bigint) AS s(n) ORDER BY 1) AS w "
            f"WHERE NOT EXISTS (SELECT FROM {table} t WHERE t.{column} = {new})"
        )
        values = {
            "contact": {
                "id": new, "recipient_ref": "'m-' || p", "address_hash": "sha256(int8send(p))", "person_key_id": own_id(9, "p"),
            },
            "person_key": {"id": new, "name": "'m-' || p"},
            "gate": {"address_hash": new, "slots": _in_the_past(str(self.rows["gate"]["slots"]))},
        }[table]  # fmt: skip
        return self._insert(table, values, people)

    def _closed(self, table: str, lo: int, hi: int) -> Iterator[str]:
        if hi < lo or table in {"outbox", "feed_pending"}:
            return
        if table in {"contact", "person_key", "gate"}:
            yield self._people(table, lo, hi)
            return
        times = {
            "event": {"accepted_at": AT, "expires_at": f"{AT} + interval '3 days'"},
            "intent": {
                "accepted_at": AT, "expires_at": f"{AT} + interval '3 days'", "closed_at": f"{AT} + interval '20 s'",
                "state": STATE, "reason": REASON, "transition_count": "3",
            },
            "decision": {"decided_at": AT, "evidence": "'{}'"},
            "attempt": {
                "created_at": AT, "prepared_at": f"{AT} + interval '1 s'", "answered_at": f"{AT} + interval '2 s'",
                "horizon_at": f"{AT} + interval '1 day'", "ended_at": f"{AT} + interval '20 s'", "state": STATE,
                "next_check_at": "NULL", "taken": "true",
            },
            "transition": {"at": f"{AT} + k * interval '6 s'"},
            "receipt": {
                "received_at": f"{AT} + interval '19 s'", "observed_at": f"{AT} + interval '20 s'", "status": "'observed'",
            },
        }.get(table, {})  # fmt: skip
        yield self._insert(table, {**_own(table), **times}, _series(table, lo, hi, told=3))

    def _open(self, table: str, lo: int, hi: int, how: Open) -> Iterator[str]:
        if table in {"contact", "person_key", "gate"}:
            yield self._people(table, lo, hi)
            return
        absent = {"outbox": how.due_at, "remote_id": how.next_check_at, "receipt": how.received_at}.get(table)
        if absent == "NULL" or table == "feed":  # its transitions wait for a place
            return
        handed_off = how.next_check_at != "NULL"
        values = {
            "intent": {
                "state": "'in_flight'" if handed_off else "'queued'", "reason": "NULL", "closed_at": "NULL",
                "transition_count": "2" if handed_off else "1", "expires_at": how.expires_at,
            },
            "attempt": {
                "state": how.state, "next_check_at": how.next_check_at, "horizon_at": "now() + interval '1 day'",
                "prepared_at": "now() - interval '1 minute'" if handed_off else "NULL", "ended_at": "NULL",
                "taken": str(handed_off).lower(),
            },
            "outbox": {"due_at": how.due_at},
            "receipt": {"received_at": how.received_at, "observed_at": "NULL", "status": "'waiting'"},
        }.get(table, {})  # fmt: skip
        yield self._insert(table, {**_own(table), **values}, _series(table, lo, hi, told=1))


def own_id(slot: int, number: str) -> str:
    """Write an event's own id: ascending in the number, as ids are in time."""
    return f"('{slot:08x}-0000-7000-8000-' || lpad(to_hex({number}), 12, '0'))::uuid"


def _series(table: str, lo: int, hi: int, *, told: int) -> str:
    """Give the numbers; for history so many rows of each, one after the other as the feed has them."""
    numbers = f"generate_series({lo}::bigint, {hi}::bigint) AS s(n)"
    return f"{numbers}, generate_series(1, {told}) AS k" if table in {"transition", "feed", "feed_pending"} else numbers


def _own(table: str) -> dict[str, str]:
    """Give what differs between events, by column."""
    key = f"'class.opening/c-' || n || '/m-' || {PERSON}"
    event, intent, decision, attempt = (own_id(slot, "n") for slot in (1, 2, 3, 4))
    of_event = {"event_id": event, "intent_id": intent, "attempt_id": attempt}
    transition = own_id(5, "n * 4 + k")
    return {
        "event": {
            "id": event, "key": key, "business_key": key, "subject": "'c-' || n", "recipient_ref": f"'m-' || {PERSON}",
            "person_key_id": own_id(9, PERSON),
        },
        "intent": {
            "id": intent, "event_id": event, "business_key": key, "recipient_ref": f"'m-' || {PERSON}",
            "contact_id": own_id(8, PERSON), "gate_hash": f"sha256(int8send({PERSON}))",
        },
        "decision": {"id": decision, **of_event},
        "attempt": {
            "id": attempt, "event_id": event, "intent_id": intent, "decision_id": decision, "attempt_key": _random("a"),
        },
        "transition": {
            "id": transition, **of_event, "n": "k",
            "from_state": "(ARRAY[NULL, 'queued', 'handed_off'])[k]", "state": "(ARRAY['queued', 'handed_off', 'delivered'])[k]",
        },
        "feed": {"transition_id": transition, "intent_id": intent, "recipient_ref": f"'m-' || {PERSON}"},
        "feed_pending": {"transition_id": transition, "intent_id": intent, "n": "k", "recipient_ref": f"'m-' || {PERSON}"},
        "remote_id": {"attempt_id": attempt, "event_id": event, "remote_id": _random("r")},
        "receipt": {"id": own_id(6, "n"), "attempt_id": attempt, "dedupe_key": _random("d")},
        "outbox": {**of_event, "decision_id": decision},
    }[table]  # fmt: skip


def _random(salt: str) -> str:
    """Write a token that falls anywhere in its index."""
    return f"md5('{salt}' || n)"


def _in_the_past(slots: str) -> str:
    """Let a gate's slots be as long as they are, and free again."""
    return literal(re.sub(r"\d{4}-\d\d-\d\dT", "2020-01-01T", slots))


def _indexes(connection: Connection[Any], table: str) -> list[tuple[str, str]]:
    """Give, for each index that can be built after its rows, how it is dropped and made again."""
    found = connection.execute(INDEXES, [table]).fetchall()
    return [
        (
            f"ALTER TABLE {table} DROP CONSTRAINT {constraint}" if constraint else f"DROP INDEX {name}",
            f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {definition}" if constraint else create,
        )
        for name, create, constraint, definition in found
        # People are looked for as they are added.
        if not (table in {"contact", "person_key", "gate"} and definition and definition.startswith("PRIMARY"))
    ]


def record_past(house: House, town: Town, tape: Tape) -> Past:
    """Let one bulk event be accepted and handed off in this process, and keep a row of each table."""
    house.wipe(scratch=False)
    with house.connect() as connection:
        accept_all(town, 1, template=BULK)
        rows = {table: row for table in FILLED for row in read_rows(connection, table)}
        hand_off_all()
        rows |= {table: row for table in ("gate", "remote_id", "attempt", "intent") for row in read_rows(connection, table)}
    (receipt,) = tape.rows["settled", "receipt"]
    ours = {"tenant_id": str(town.tenant_id), "route_id": str(town.route_id)}
    pending = rows["feed_pending"]
    rows["receipt"] = {**receipt, **ours}
    rows["feed"] = {name: pending[name] for name in ("transition_id", "intent_id", "tenant_id", "recipient_ref")}
    house.wipe(scratch=False)
    return Past(house, rows)


@contextmanager
def no_journal(house: House) -> Iterator[None]:
    """Keep the filled tables out of the journal and away from autovacuum; empty and as migrated afterwards."""
    with house.connect() as connection:
        migrated = connection.execute(SCHEMA).fetchall()
        for table in UNLOGGED:
            connection.execute(sql(f"ALTER TABLE {table} SET UNLOGGED"))
            connection.execute(sql(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
    try:
        yield
    finally:
        house.wipe(scratch=False)
        with house.connect() as connection:
            for table in reversed(UNLOGGED):
                connection.execute(sql(f"ALTER TABLE {table} SET LOGGED"))
                connection.execute(sql(f"ALTER TABLE {table} RESET (autovacuum_enabled)"))
            if connection.execute(SCHEMA).fetchall() != migrated:
                raise NotAsMigrated("an index that was dropped for filling is not there again as it was")
