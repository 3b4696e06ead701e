"""Invariant 11: personal values are in the vault, open under its keys, and stand nowhere else in clear."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from sqlalchemy import ARRAY, Column, Table, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ledger.audit.check import NAMED, Breach, Check, Scope, run
from app.people.contacts import address_hash
from app.people.vault import open_vault_key, unwrap
from models.all import Base

SAMPLED: Final = 200
"""Newest rows opened per table when not everything is."""
PAGE: Final = 1000

# Where ciphertext is kept, and the name of its row's key. Newest first, a page at a time.
SEALED: Final = {
    "contact": ("sealed_address", "id"),
    "event": ("payload", "id"),
    "receipt_raw": ("sealed_call", "receipt_id"),
    "refused_receipt": ("sealed_call", "id"),
    "inlet": ("sealed_request", "id"),
    "inbound": ("sealed_text", "id"),
    "inbound_raw": ("sealed_call", "inbound_id"),
}
PAGE_OF: Final = """
SELECT v.{key} AS row_id, v.{column} AS sealed, v.person_key_id, k.id AS key_id, k.wrapped_key, k.destroyed_at, {hashes}
FROM {table} v LEFT JOIN person_key k ON k.id = v.person_key_id
WHERE v.{column} IS NOT NULL AND (%(before)s::{type} IS NULL OR v.{key} < %(before)s::{type})
ORDER BY v.{key} DESC LIMIT %(limit)s
"""
ROUTES: Final = "SELECT id, sealed_credentials FROM route ORDER BY id"

# The vault itself, what the tenant publishes to everybody, and names that hold no text of others.
VAULT_COLUMNS: Final = frozenset({("inlet", "request")})
PUBLISHED: Final = frozenset({"policy_version", "template_version", "route", "tenant", "api_key", "contact", "person_key"})
MINE: Final = frozenset({"alembic_version", "heartbeat", "feed_state", "dispatch_floor", "sweep_floor"})

# A number in international form or an e-mail address, also percent-encoded as in a business key. The
# plus keeps ids, hashes and codes out, which hold runs of digits of their own.
LOOKS_PERSONAL: Final = r"(\+|%2[Bb])[0-9]{8,15}|[[:alnum:]._+-]+(@|%40)[[:alnum:]-]+\.[[:alpha:]]{2,}"

WALKS: Final = {
    "event": "events s JOIN event v ON v.id = s.id",
    "intent": "scope s JOIN intent v ON v.id = s.id",
    "observation": "scope s JOIN attempt a ON a.intent_id = s.id JOIN observation v ON v.attempt_id = a.id",
    "remote_id": "scope s JOIN attempt a ON a.intent_id = s.id JOIN remote_id v ON v.attempt_id = a.id",
    "gate": """(SELECT DISTINCT i.tenant_id, i.gate_hash FROM scope s JOIN intent i ON i.id = s.id) s
               JOIN gate v ON v.tenant_id = s.tenant_id AND v.address_hash = s.gate_hash""",
}

# What was told of a person counts for the address that it hangs on: it must be that person's own.
TOLD: Final = """
SELECT v.id FROM (SELECT * FROM {table} WHERE id >= %(from_id)s) v
LEFT JOIN contact k ON k.id = v.contact_id AND k.tenant_id = v.tenant_id AND k.recipient_ref = v.recipient_ref
                   AND k.channel = v.channel AND k.address_hash = v.address_hash
WHERE k.id IS NULL
"""
DESCRIBED: Final = """
SELECT v.id FROM (SELECT * FROM recipient WHERE id >= %(from_id)s) v
CROSS JOIN LATERAL jsonb_each_text(v.contacts) AS e (channel, contact_id)
LEFT JOIN contact k ON k.tenant_id = v.tenant_id AND k.recipient_ref = v.ref AND k.channel = e.channel
                   AND k.id::text = e.contact_id
WHERE k.id IS NULL
"""
ADRIFT: Final = "what was told of a person hangs on an address that is not theirs"
ADDRESSED: Final = (
    Check(11, "adrift_consent", ADRIFT, TOLD.format(table="consent")),
    Check(11, "adrift_preference", ADRIFT, TOLD.format(table="preference")),
    Check(11, "adrift_recipient", ADRIFT, DESCRIBED),
)

# Why a request was refused quotes none of its values, but gives an example of a good one.
EXAMPLE: Final = "like +12015550123"

DOES_NOT_OPEN: Final = "a value in the vault does not open under its key"
HASH_DIFFERS: Final = "a contact's hash, on which its gate and suppressions hang, is not that of its address"


@dataclass(frozen=True, slots=True)
class _Damaged:
    table: str
    row_id: str
    of_hash: bool = False


def find_damaged(session: Session, *, full: bool) -> list[Breach]:
    """Open what is sealed: all of it, or the newest of each table."""
    damaged = [each for table in SEALED for each in _damaged_in(session, table, full=full)]
    damaged += [_Damaged("route", str(row.id)) for row in rows(session, ROUTES) if not _opens(bytes(row.sealed_credentials))]
    found = []
    for code, words, of_hash in (("does_not_open", DOES_NOT_OPEN, False), ("hash_differs", HASH_DIFFERS, True)):
        ours = [{"table": d.table, "row_id": d.row_id} for d in damaged if d.of_hash is of_hash]
        if ours:
            found.append(Breach(11, code, words, len(ours), ours[:NAMED]))
    return found


def _damaged_in(session: Session, table: str, *, full: bool) -> Iterator[_Damaged]:
    for page in _pages(session, table, full=full):
        for row in page:
            if row.destroyed_at is not None:
                continue  # erased: it is meant not to open
            try:
                value = open_vault_key(row.key_id, row.wrapped_key).open(bytes(row.sealed))
            except DaybookError:
                yield _Damaged(table, str(row.row_id))
                continue
            if row.address_hash is not None and not _hashes_to(row, value):
                yield _Damaged(table, str(row.row_id), of_hash=True)


def _pages(session: Session, table: str, *, full: bool) -> Iterator[Sequence[Any]]:
    column, key = SEALED[table]
    hashes = "v.channel, v.address_hash, v.hash_key_id" if table == "contact" else "NULL AS address_hash"
    kind = "bigint" if table == "inlet" else "uuid"
    statement = PAGE_OF.format(table=table, column=column, key=key, hashes=hashes, type=kind)
    before: UUID | int | None = None
    while page := rows(session, statement, before=before, limit=PAGE if full else SAMPLED):
        yield page
        if not full or len(page) < PAGE:
            return
        before = page[-1].row_id


def _hashes_to(row: Any, address: str) -> bool:  # noqa: ANN401 - a row of PAGE_OF
    hashed = address_hash(row.channel, address)
    return row.hash_key_id != hashed.key_id or bytes(row.address_hash) == hashed.digest


def _opens(wrapped: bytes) -> bool:
    try:
        unwrap(wrapped)
    except DaybookError:
        return False
    return True


def find_personal(session: Session, scope: Scope) -> list[Breach]:
    """Look into every text of the ledger for what looks like an address, and for what hangs on somebody else's.

    A column that is added later is looked into as well.
    """
    checks = [_check(table) for table in Base.metadata.sorted_tables if table.name not in PUBLISHED | MINE and _texts(table)]
    return [
        breach
        for check in (*checks, *ADDRESSED)
        if (breach := run(session, check, scope, personal=LOOKS_PERSONAL, example=EXAMPLE)) is not None
    ]


def _check(table: Table) -> Check:
    key = ", ".join(f"{_named(c)} AS {c.name}" for c in table.primary_key.columns)
    found = " OR ".join(f"replace(v.{c.name}::text, %(example)s, '') ~ %(personal)s" for c in _texts(table))
    sql = f"SELECT {key} FROM {_walked(table)} WHERE {found}"  # noqa: S608 - names from our own tables
    return Check(11, f"personal_in_{table.name}", f"a text of `{table.name}` looks like an address", sql)


def _walked(table: Table) -> str:
    """Join a table to what is to be walked, by the index that it has."""
    if table.name in WALKS:
        return WALKS[table.name]
    if "intent_id" in table.columns:
        return f"scope s JOIN {table.name} v ON v.intent_id = s.id"
    if "id" in table.columns and table.name != "inlet":
        return f"(SELECT * FROM {table.name} WHERE id >= %(from_id)s) v"  # noqa: S608 - names from our own tables
    return f"{table.name} v"


def _texts(table: Table) -> list[Column[Any]]:
    return [
        c
        for c in table.columns
        if isinstance(c.type, Text | JSONB | ARRAY) and (table.name, c.name) not in VAULT_COLUMNS and c.computed is None
    ]


def _named(column: Column[Any]) -> str:
    return f"encode(v.{column.name}, 'hex')" if column.name == "address_hash" else f"v.{column.name}"
