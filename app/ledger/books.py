"""Lock what belongs to some intents, always in the order intent, attempt, outbox, gate, ascending."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import Rows, Statement, rows, run_together

# In READ COMMITTED a row that had to be waited for comes back as its last committed version, so
# what is read here is what is locked. NO KEY UPDATE: an insert that refers to the intent may pass,
# an acceptance that joins it (FOR SHARE) may not.
LOCK_INTENTS: Final = """
SELECT id, event_id, tenant_id, business_key, channel, category, recipient_ref, contact_id, gate_hash, declared_zone,
       expires_at, accepted_at, state, reason, next_at, transition_count, holds_key, close_requested_at, close_request, closed_at
FROM intent WHERE id = {these} ORDER BY id FOR NO KEY UPDATE
"""

LOCK_ATTEMPTS: Final = """
SELECT id, intent_id, event_id, tenant_id, ordinal, route_id, attempt_key, state, error_class, error_code, body_hash, hash_key_id,
       encoding, segment_count, price, currency, decision_id, lease, prepared_at, answered_at, taken, next_check_at, horizon_at,
       check_count, not_found_count, created_at
FROM attempt WHERE intent_id = {these} ORDER BY id FOR NO KEY UPDATE
"""

# 'infinity' (a row parked for a review) has no Python value.
LOCK_OUTBOX: Final = """
SELECT attempt_id, intent_id, lane, route_id, nullif(due_at, 'infinity') AS due_at, reason, decision_id, lease, leased_until,
       lost_lease_count
FROM outbox WHERE intent_id = {these} ORDER BY attempt_id FOR UPDATE
"""

# Which intent an attempt belongs to never changes: it is looked up in the statement that locks.
NAMED: Final = "ANY(%(intents)s::uuid[])"
OF_ATTEMPTS: Final = "ANY(ARRAY(SELECT intent_id FROM attempt WHERE id = ANY(%(attempts)s::uuid[])))"
STATEMENTS: Final = (LOCK_INTENTS, LOCK_ATTEMPTS, LOCK_OUTBOX)
BY_INTENT: Final = tuple(statement.format(these=NAMED) for statement in STATEMENTS)
BY_ATTEMPT: Final = tuple(statement.format(these=OF_ATTEMPTS) for statement in STATEMENTS)

LOCK_GATES = """
SELECT tenant_id, address_hash, slots, suppressed_at FROM gate
WHERE (tenant_id, address_hash) IN (SELECT * FROM unnest(%(tenants)s::uuid[], %(hashes)s::bytea[]))
ORDER BY tenant_id, address_hash FOR UPDATE
"""

INTENTS_OF = "SELECT id, intent_id FROM attempt WHERE id = ANY(%(ids)s::uuid[])"


@dataclass(slots=True)
class Books:
    """Intents under lock, with all their attempts and outbox rows."""

    intents: Mapping[UUID, Any]
    attempts: Mapping[UUID, Any]
    outbox: Mapping[UUID, Any]
    """By attempt id."""
    _attempts_of: dict[UUID, list[Any]] = field(init=False, default_factory=dict)
    _count: dict[UUID, int] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for attempt in sorted(self.attempts.values(), key=lambda a: a.ordinal):
            self._attempts_of.setdefault(attempt.intent_id, []).append(attempt)

    def attempts_of(self, intent_id: UUID) -> Sequence[Any]:
        """Give an intent's attempts, oldest first."""
        return self._attempts_of.get(intent_id, [])

    def next_n(self, intent_id: UUID) -> int:
        """Count the intent's next transition."""
        self._count[intent_id] = self._count.get(intent_id, self.intents[intent_id].transition_count) + 1
        return self._count[intent_id]


def intents_of(session: Session, attempt_ids: Iterable[UUID]) -> dict[UUID, UUID]:
    """Find which intent each attempt belongs to; that never changes, so no lock is needed."""
    return {row.id: row.intent_id for row in rows(session, INTENTS_OF, ids=sorted(attempt_ids))}


def lock_books(session: Session, intent_ids: Iterable[UUID]) -> Books:
    """Lock these intents and everything under them, waiting for whoever holds them."""
    ids = {"intents": sorted(set(intent_ids))}
    return books_of(run_together(session, [(statement, ids) for statement in BY_INTENT]))


def lock_books_of(session: Session, attempt_ids: Iterable[UUID]) -> Books:
    """Lock the intents of these attempts and everything under them, waiting for whoever holds them."""
    return books_of(run_together(session, locks_of(attempt_ids)))


def locks_of(attempt_ids: Iterable[UUID]) -> list[Statement]:
    """Give the three statements of `lock_books_of`, for a pipeline that reads on under the locks."""
    ids = {"attempts": sorted(set(attempt_ids))}
    return [(statement, ids) for statement in BY_ATTEMPT]


def claim_books(session: Session, intent_ids: Iterable[UUID]) -> Books:
    """Lock those of these intents that nobody holds; never wait."""
    intents_, attempts_, outbox_ = (f"{statement} SKIP LOCKED" for statement in BY_INTENT)
    intents = rows(session, intents_, intents=sorted(set(intent_ids)))
    ours = {"intents": [i.id for i in intents]}
    return books_of([intents, *run_together(session, [(attempts_, ours), (outbox_, ours)])])


def claim_intents_of(session: Session, attempt_ids: Iterable[UUID]) -> tuple[Rows, list[Statement]]:
    """Lock those of these attempts' intents that nobody holds; give with them the statements that lock what is under them."""
    intents = rows(session, f"{BY_ATTEMPT[0]} SKIP LOCKED", attempts=sorted(set(attempt_ids)))
    ours = {"intents": [i.id for i in intents]}
    return intents, [(statement, ours) for statement in BY_INTENT[1:]]


def books_of(results: Sequence[Rows]) -> Books:
    """Arrange what the three locking statements returned."""
    intents, attempts, outbox = results
    return Books({i.id: i for i in intents}, {a.id: a for a in attempts}, {o.attempt_id: o for o in outbox})


def lock_gates(session: Session, keys: Iterable[tuple[UUID, bytes]]) -> None:
    """Lock these gates, which come last in the order, waiting for whoever holds them."""
    ordered = sorted(keys)
    rows(session, LOCK_GATES, tenants=[k[0] for k in ordered], hashes=[k[1] for k in ordered])
