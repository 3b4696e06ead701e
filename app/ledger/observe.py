"""Observe what was heard: keep every report, let the state climb, and draw the consequences.

Observations are never fenced: what a carrier said is a fact, whoever carries it and however late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, pipelined, rows
from app.ground.ids import AttemptId, new_id
from app.ledger import state
from app.ledger.books import Books, intents_of, lock_books
from app.ledger.consequences import draw_consequences
from app.ledger.heard import Heard
from app.ledger.routes import read_routes
from models.ledger import Observation, RemoteId
from policy.states import AttemptState, Judgement, judge
from policy.words import ErrorClass, Reason, Source

# A report is offered again under its own id until it is kept: what is there already was kept.
KNOWN = "SELECT id FROM observation WHERE id = ANY(%(ids)s::uuid[])"

HELD_IDS = """
SELECT route_id, remote_id, attempt_id, part FROM remote_id
WHERE attempt_id = ANY(%(attempts)s::uuid[])
   OR (route_id, remote_id) IN (SELECT * FROM unnest(%(routes)s::uuid[], %(remote_ids)s::text[]))
"""

CLEAR_OUTBOX = "DELETE FROM outbox WHERE attempt_id = ANY(%(ids)s::uuid[])"


@dataclass(frozen=True, slots=True)
class Told:
    """One report about one attempt, on its way into the ledger."""

    attempt_id: AttemptId
    state: AttemptState
    source: Source
    id: UUID = field(default_factory=new_id)
    """The observation's own id, made where it was heard: offering it twice keeps it once."""
    error_class: ErrorClass | None = None
    error_code: str | None = None
    reason: Reason | None = None
    remote_id: str | None = None
    part: int = 0
    receipt_id: UUID | None = None
    source_at: datetime | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What became of one report."""

    told: Told
    judgement: Judgement
    conflict: bool


def observe(session: Session, told: Sequence[Told], *, now: datetime) -> list[Observed]:
    """Keep these reports and apply them; those already kept change nothing and are not returned."""
    intents = intents_of(session, {t.attempt_id for t in told})
    known_attempts = [t for t in told if t.attempt_id in intents]
    if not known_attempts:
        return []
    books = lock_books(session, intents.values())
    kept = {row.id for row in rows(session, KNOWN, ids=sorted(t.id for t in known_attempts))}
    fresh = sorted((t for t in known_attempts if t.id not in kept), key=lambda t: (t.attempt_id, t.id))
    if not fresh:
        return []
    conflicts = _keep_remote_ids(session, books, fresh)
    heard, observed = _join(books, fresh, conflicts)
    pipelined(session, [insertion(Observation, [_row(books, o, now) for o in observed])])
    _apply(session, books, heard.values(), now=now)
    draw_consequences(session, books, list(heard.values()), now=now)
    return observed


def _join(books: Books, told: Iterable[Told], conflicts: set[UUID]) -> tuple[dict[UUID, Heard], list[Observed]]:
    """Fold each attempt's reports into its state, in order; every report keeps its own judgement."""
    heard: dict[UUID, Heard] = {}
    observed = []
    for t in told:
        attempt = books.attempts[t.attempt_id]
        before = heard.get(t.attempt_id) or Heard(attempt, AttemptState(attempt.state), taken=attempt.taken)
        judgement = judge(before.state, t.state)
        heard[t.attempt_id] = before.hear(t, judgement)
        observed.append(Observed(t, judgement, t.id in conflicts))
    return heard, observed


def _apply(session: Session, books: Books, heard: Iterable[Heard], *, now: datetime) -> None:
    """Let the states climb; an attempt that was still queued leaves the outbox."""
    changed = [h for h in heard if h.must_write]
    routes = read_routes(session, {h.attempt.route_id for h in changed if h.attempt.route_id})
    closing = {i for i, intent in books.intents.items() if intent.close_requested_at is not None}
    applications = [h.application(routes, closing=h.attempt.intent_id in closing, now=now) for h in changed]
    done = state.apply(session, applications, now=now) if changed else set()
    if len(done) != len(changed):
        raise state.LockBroken("an attempt changed its state under our lock")
    waiting = sorted(h.attempt.id for h in changed if h.attempt.id in books.outbox)
    if waiting:
        rows(session, CLEAR_OUTBOX, ids=waiting)


def _keep_remote_ids(session: Session, books: Books, told: Sequence[Told]) -> set[UUID]:
    """Store remote ids, each once; return the reports that bring a second one, or another attempt's."""
    named = [t for t in told if t.remote_id is not None and books.attempts[t.attempt_id].route_id is not None]
    if not named:
        return set()
    held = rows(
        session,
        HELD_IDS,
        attempts=sorted({t.attempt_id for t in named}),
        routes=[books.attempts[t.attempt_id].route_id for t in named],
        remote_ids=[t.remote_id for t in named],
    )
    owner: dict[tuple[UUID, str], UUID] = {(h.route_id, h.remote_id): h.attempt_id for h in held}
    parts = {(h.attempt_id, h.part): h.remote_id for h in held}
    new, conflicts = [], set()
    for t in named:
        attempt, remote_id = books.attempts[t.attempt_id], t.remote_id or ""
        name = (attempt.route_id, remote_id)
        if owner.get(name) == t.attempt_id:
            continue
        if name in owner or (t.attempt_id, t.part) in parts:
            conflicts.add(t.id)
            continue
        owner[name], parts[(t.attempt_id, t.part)] = t.attempt_id, remote_id
        new.append(
            {
                "route_id": attempt.route_id,
                "remote_id": remote_id,
                "attempt_id": t.attempt_id,
                "event_id": attempt.event_id,
                "tenant_id": attempt.tenant_id,
                "part": t.part,
            }
        )
    if new:
        new.sort(key=lambda row: (row["route_id"], row["remote_id"]))
        # Two attempts of two intents may bring the same id in transactions that overlap: the second
        # waits here for the first and then keeps its report without the id; `audit` names the pair.
        pipelined(session, [insertion(RemoteId, new, tail="ON CONFLICT DO NOTHING")])
    return conflicts


def _row(books: Books, observed: Observed, now: datetime) -> dict[str, Any]:
    told, attempt = observed.told, books.attempts[observed.told.attempt_id]
    return {
        "id": told.id,
        "tenant_id": attempt.tenant_id,
        "event_id": attempt.event_id,
        "intent_id": attempt.intent_id,
        "attempt_id": told.attempt_id,
        "source": told.source,
        "state": told.state,
        "judgement": observed.judgement,
        "conflict": observed.conflict,
        "error_class": told.error_class,
        "error_code": told.error_code,
        "reason": told.reason,
        "remote_id": told.remote_id,
        "receipt_id": told.receipt_id,
        "source_at": told.source_at,
        "observed_at": now,
    }
