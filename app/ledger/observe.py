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

from app.ground.db import Rows, Statement, insertion, run_together
from app.ground.ids import AttemptId, new_id
from app.ledger import state
from app.ledger.books import Books, books_of, claim_intents_of, locks_of
from app.ledger.consequences import Desk
from app.ledger.heard import Heard
from app.ledger.routes import read_routes
from app.ledger.transition import recording
from models.ledger import Observation, RemoteId
from policy.states import AttemptState, Judgement, judge
from policy.words import ErrorClass, Reason, Source

# A report is offered again under its own id until it is kept: what is there already was kept.
KNOWN = "SELECT id FROM observation WHERE id = ANY(%(ids)s::uuid[])"

# What these attempts hold, and who holds the ids that these reports bring.
HELD_IDS = """
SELECT route_id, remote_id, attempt_id, part FROM remote_id WHERE attempt_id = ANY(%(attempts)s::uuid[])
UNION ALL
SELECT route_id, remote_id, attempt_id, part FROM remote_id
WHERE (route_id, remote_id) IN (SELECT a.route_id, n.remote_id
                                FROM unnest(%(attempts)s::uuid[], %(remote_ids)s::text[]) AS n (id, remote_id)
                                JOIN attempt a ON a.id = n.id)
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
    *locked, known, held = run_together(session, [*locks_of(t.attempt_id for t in told), *_reads(told)])
    return _observe(session, told, books_of(locked), known, held, now=now)


def observe_free(session: Session, told: Sequence[Told], *, now: datetime) -> frozenset[UUID]:
    """Do the same for the attempts whose intents nobody holds, and wait for none; give those attempts."""
    intents, locks = claim_intents_of(session, (t.attempt_id for t in told))
    *locked, known, held = run_together(session, [*locks, *_reads(told)])
    books = books_of([intents, *locked])
    _observe(session, told, books, known, held, now=now)
    return frozenset(books.attempts)


def _observe(session: Session, told: Sequence[Told], books: Books, known: Rows, held: Rows, *, now: datetime) -> list[Observed]:
    kept = {row.id for row in known}
    fresh = sorted((t for t in told if t.attempt_id in books.attempts and t.id not in kept), key=lambda t: (t.attempt_id, t.id))
    if not fresh:
        return []
    remote_ids, conflicts = _sort_remote_ids(books, fresh, held)
    heard, observed = _join(books, fresh, conflicts)
    desk = Desk(session, books, heard, now)
    changed = [h for h in heard.values() if h.must_write]
    statements = [insertion(Observation, [_row(books, o, now) for o in observed]), *_applying(session, books, changed, now=now)]
    if remote_ids:
        # Two attempts of two intents may bring the same id in transactions that overlap: the second
        # waits here for the first and then keeps its report without the id; `audit` names the pair.
        statements.append(insertion(RemoteId, remote_ids, tail="ON CONFLICT DO NOTHING"))
    results = run_together(session, [*statements, *recording(desk.changes(), now=now)])
    if changed:
        state.confirm(results[1], changed)
    desk.draw_consequences()
    return observed


def _reads(told: Sequence[Told]) -> list[Statement]:
    """Read which of these reports, and which remote ids, the books hold already."""
    named = [t for t in told if t.remote_id is not None]
    return [
        (KNOWN, {"ids": sorted(t.id for t in told)}),
        (HELD_IDS, {"attempts": [t.attempt_id for t in named], "remote_ids": [t.remote_id for t in named]}),
    ]


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


def _applying(session: Session, books: Books, changed: Sequence[Heard], *, now: datetime) -> list[Statement]:
    """Let the states climb; an attempt that was still queued leaves the outbox."""
    if not changed:
        return []
    routes = read_routes(session, {h.attempt.route_id for h in changed if h.attempt.route_id})
    closing = {i for i, intent in books.intents.items() if intent.close_requested_at is not None}
    applications = [h.application(routes, closing=h.attempt.intent_id in closing, now=now) for h in changed]
    waiting = sorted(h.attempt.id for h in changed if h.attempt.id in books.outbox)
    clearing = [(CLEAR_OUTBOX, {"ids": waiting})] if waiting else []
    return [state.applying(applications, now=now), *clearing]


def _sort_remote_ids(books: Books, told: Sequence[Told], held: Rows) -> tuple[list[dict[str, Any]], set[UUID]]:
    """Lay out remote ids to be stored, each once; name the reports that bring a second one, or another attempt's."""
    owner: dict[tuple[UUID, str], UUID] = {(h.route_id, h.remote_id): h.attempt_id for h in held}
    parts = {(h.attempt_id, h.part): h.remote_id for h in held}
    new, conflicts = [], set()
    for t in told:
        attempt, remote_id = books.attempts[t.attempt_id], t.remote_id
        if remote_id is None or attempt.route_id is None:
            continue
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
    return sorted(new, key=lambda row: (row["route_id"], row["remote_id"])), conflicts


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
