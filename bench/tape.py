"""The rows that one event leaves in the ledger, recorded from a real life and written again for any number `n`.

A counterpart must write what we write: the same tables, columns and indexes, with the bytes that real
evidence, ciphertext and hashes have. So one event is accepted, handed off and delivered by the real code,
its rows are read back as text, and every value that must differ between events becomes an expression of `n`.
"""

# ruff: noqa: S608 - statements made of our own names and of rows that our own code wrote

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from psycopg import Connection

from app.flows.receipts import take_receipt
from bench.house import House, sql
from bench.town import Town, accept_all, events, hand_off_all, receipt

ACCEPTED: Final = ("person_key", "contact", "event", "intent", "decision", "attempt", "transition", "feed_pending", "outbox")
HANDED: Final = ("gate", "observation", "remote_id", "transition", "feed_pending")
SETTLED: Final = ("receipt", "receipt_raw", "observation", "transition", "feed_pending")

# Configuration is the same for every event; all other ids are an event's own.
SHARED_IDS: Final = frozenset({"tenant_id", "route_id", "policy_version_id"})
OWN_TEXTS: Final = frozenset(
    {"key", "business_key", "subject", "recipient_ref", "name", "attempt_key", "dedupe_key", "remote_id"}
)
# As hashes do, these fall anywhere in their index.
OWN_HASHES: Final = frozenset({"gate_hash", "address_hash"})

COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' AND a.attidentity = ''
ORDER BY a.attnum
"""
HANDED_OFF: Final = """
SELECT a.attempt_key, r.remote_id FROM attempt a JOIN remote_id r ON r.attempt_id = a.id
"""

Row = Mapping[str, str | None]


@dataclass(slots=True)
class Tape:
    """The recorded rows of one event, by what happened and table."""

    rows: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    types: dict[str, dict[str, str]] = field(default_factory=dict)
    slots: dict[str, int] = field(default_factory=dict)
    """Each of the event's own ids, numbered as they first appear."""

    def insertions(self, happened: str, lo: str, hi: str) -> list[str]:
        """Write one INSERT per recorded row, for every `n` from `lo` to `hi`."""
        found = [(table, row) for (when, table), rows in self.rows.items() if when == happened for row in rows]
        return [
            f"INSERT INTO {table} ({', '.join(row)}) SELECT {self._values(table, row)} FROM {series(lo, hi)}"
            for table, row in found
        ]

    def _values(self, table: str, row: Row) -> str:
        return ", ".join(self._value(table, column, value) for column, value in row.items())

    def _value(self, table: str, column: str, value: str | None) -> str:
        kind = self.types[table][column]
        if value is None:
            return f"NULL::{kind}"
        if kind == "uuid" and column not in SHARED_IDS:
            return self._own_id(value)
        if column in OWN_TEXTS:
            return f"lpad(n::text, {len(value)}, 'x')"
        if column in OWN_HASHES:
            return "sha256(int8send(n))"
        return f"{literal(value)}::{kind}"

    def _own_id(self, value: str) -> str:
        slot = self.slots.setdefault(value, len(self.slots) + 1)
        return f"('{slot:08x}-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"

    def ids(self, happened: str, table: str, column: str = "id") -> list[str]:
        """Give the id expressions of the rows that something left in a table."""
        return [self._own_id(str(row[column])) for row in self.rows[happened, table]]

    def id(self, table: str) -> str:
        """Give the id expression of the one row that acceptance left in a table."""
        return self.ids("accepted", table)[0]


def literal(text: str) -> str:
    """Write a constant in which pgbench finds no variable: it looks for colons inside quotes as well."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace(":", "\\x3a")
    return f"E'{escaped}'"


def series(lo: str, hi: str) -> str:
    """Write the numbers from `lo` to `hi` as a relation of one column, `n`."""
    return f"(SELECT {lo}::bigint) AS one(n)" if lo == hi else f"generate_series({lo}::bigint, {hi}::bigint) AS many(n)"


def record(house: House, town: Town) -> Tape:
    """Let one event live through it all in this process, and keep its rows."""
    tape = Tape()
    with house.connect() as connection:
        before = _all(connection)
        accept_all(town, 1)
        before = _note(tape, connection, "accepted", ACCEPTED, before)
        hand_off_all()
        before = _note(tape, connection, "handed", HANDED, before)
        ((attempt_key, remote_id),) = connection.execute(HANDED_OFF).fetchall()
        (event,) = events(1)
        take_receipt(town.route_id, receipt(town, attempt_key, remote_id, event["recipient"]["sms"]))
        _note(tape, connection, "settled", SETTLED, before)
        tape.types = {table: dict(_columns(connection, table)) for table in {*ACCEPTED, *HANDED, *SETTLED}}
    # A receipt is kept as waiting and marked later; the recorded row has both behind it.
    tape.rows["settled", "receipt"] = [
        {**row, "status": "waiting", "observed_at": None} for row in tape.rows["settled", "receipt"]
    ]
    house.wipe(scratch=False)
    return tape


def record_accepted(house: House, town: Town, template: str) -> Tape:
    """Let one event of a template be accepted in this process, and keep its rows."""
    tape = Tape()
    with house.connect() as connection:
        accept_all(town, 1, template=template)
        for table in ACCEPTED:
            tape.rows["accepted", table] = list(read_rows(connection, table))
            tape.types[table] = dict(_columns(connection, table))
    house.wipe(scratch=False)
    return tape


Everything = dict[str, list[Row]]


def _all(connection: Connection[Any]) -> Everything:
    return {table: list(read_rows(connection, table)) for table in {*ACCEPTED, *HANDED, *SETTLED}}


def _note(tape: Tape, connection: Connection[Any], happened: str, tables: Sequence[str], before: Everything) -> Everything:
    after = _all(connection)
    for table in tables:
        tape.rows[happened, table] = [row for row in after[table] if row not in before[table]]
    return after


def read_rows(connection: Connection[Any], table: str) -> Iterator[Row]:
    """Read a table's rows, every value as text."""
    names = [name for name, _ in _columns(connection, table)]
    for values in connection.execute(sql(f"SELECT {', '.join(f'{name}::text' for name in names)} FROM {table}")):
        yield dict(zip(names, values, strict=True))


def _columns(connection: Connection[Any], table: str) -> list[tuple[str, str]]:
    return [(str(name), str(kind)) for name, kind in connection.execute(COLUMNS, [table])]
