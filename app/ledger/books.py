"""Lock what belongs to some intents, always in the order intent, attempt, outbox, gate, ascending."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Rows, Statement, pipelined, rows

# In READ COMMITTED a row that had to be waited for comes back as its last committed version, so
# what is read here is what is locked. NO KEY UPDATE: an insert that refers to the intent may pass,
# an acceptance that joins it (FOR SHARE) may not.
LOCK_INTENTS = """
SELECT id, event_id, tenant_id, business_key, channel, category, recipient_ref, contact_id, gate_hash, declared_zone,
       expires_at, accepted_at, state, reason, next_at, transition_count, holds_key, close_requested_at, close_request, closed_at
FROM intent WHERE id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

LOCK_ATTEMPTS = """
SELECT id, intent_id, event_id, tenant_id, ordinal, route_id, attempt_key, state, error_class, error_code, body_hash, hash_key_id,
       encoding, segment_count, decision_id, lease, prepared_at, answered_at, taken, next_check_at, horizon_at, check_count,
       not_found_count, created_at
FROM attempt WHERE intent_id = ANY(%(ids)s::uuid[]) ORDER BY id FOR NO KEY UPDATE
"""

# 'infinity' (a row parked for a review) has no Python value.
LOCK_OUTBOX = """
SELECT attempt_id, intent_id, lane, route_id, nullif(due_at, 'infinity') AS due_at, reason, decision_id, lease, leased_until,
       lost_lease_count
FROM outbox WHERE intent_id = ANY(%(ids)s::uuid[]) ORDER BY attempt_id FOR UPDATE
"""

LOCK_GATES = """
SELECT tenant_id, address_hash, slots, suppressed_at FROM gate
WHERE (tenant_id, address_hash) IN (SELECT * FROM unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]))
ORDER BY tenant_id, address_hash FOR UPDATE
"""

INTENTS_OF = "SELECT id, intent_id FROM attempt WHERE id = ANY(%(ids)s::uuid[])"


@dataclass(slots=True)
class Books:
    """Intents under lock, with all their attempts and outbox rows."""

    intents: dict[UUID, Any]
    attempts: dict[UUID, Any]
    outbox: dict[UUID, Any]
    """By attempt id."""
    _count: dict[UUID, int] = field(default_factory=dict)

    def attempts_of(self, intent_id: UUID) -> list[Any]:
        """Give an intent's attempts, oldest first."""
        return sorted((a for a in self.attempts.values() if a.intent_id == intent_id), key=lambda a: a.ordinal)

    def next_n(self, intent_id: UUID) -> int:
        """Count the intent's next transition."""
        self._count[intent_id] = self._count.get(intent_id, self.intents[intent_id].transition_count) + 1
        return self._count[intent_id]


def intents_of(session: Session, attempt_ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Find which intent each attempt belongs to; that never changes, so no lock is needed."""
    return {row.id: row.intent_id for row in rows(session, INTENTS_OF, ids=sorted(attempt_ids))}


def lock_books(session: Session, intent_ids: Iterable[UUID]) -> Books:
    """Lock these intents and everything under them, waiting for whoever holds them."""
    ids = {"ids": sorted(set(intent_ids))}
    intents, attempts, outbox = pipelined(session, [(LOCK_INTENTS, ids), (LOCK_ATTEMPTS, ids), (LOCK_OUTBOX, ids)])
    return _books(intents, attempts, outbox)


def claim_books(session: Session, intent_ids: Iterable[UUID]) -> Books:
    """Lock those of these intents that nobody holds; never wait."""
    intents = rows(session, f"{LOCK_INTENTS} SKIP LOCKED", ids=sorted(set(intent_ids)))
    ours = {"ids": [i.id for i in intents]}
    attempts, outbox = pipelined(session, [(f"{s} SKIP LOCKED", ours) for s in (LOCK_ATTEMPTS, LOCK_OUTBOX)])
    return _books(intents, attempts, outbox)


def gates_locked(keys: Iterable[tuple[UUID, bytes]]) -> Statement:
    """Give the statement that locks gates, which come last in the order; those that do not exist are not there."""
    ordered = sorted(keys)
    return LOCK_GATES, {"tenants": [k[0] for k in ordered], "hashes": [k[1] for k in ordered]}


def lock_gates(session: Session, keys: Iterable[tuple[UUID, bytes]]) -> None:
    """Lock these gates, waiting for whoever holds them."""
    pipelined(session, [gates_locked(keys)])


def _books(intents: Rows, attempts: Rows, outbox: Rows) -> Books:
    return Books({i.id: i for i in intents}, {a.id: a for a in attempts}, {o.attempt_id: o for o in outbox})


def ids_of(values: Sequence[Any]) -> list[UUID]:
    """Give sorted ids of rows."""
    return sorted(v.id for v in values)
