"""Decide claimed attempts again, now: allow, put off with a reason, or close."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, pipelined, rows
from app.ground.ids import new_id
from app.ledger.books import Books
from app.ledger.close import Closing, close_intents
from app.ledger.decide import Decided, Wish, decide_wish
from app.ledger.open import closing_state, decision_row
from app.ledger.surroundings import statements, surroundings_of
from app.ledger.transition import change_of, record, waiting_state
from models.ledger import Decision as DecisionRow
from policy.decide import Decision, same
from policy.states import PublicState
from policy.words import Category, Channel, Reason, Verdict

FACTS = """
SELECT o.attempt_id, c.country, c.zones, e.not_before, d.id AS decision_id, d.verdict, d.reason,
       d.not_before AS decided_not_before, d.valid_until, d.evidence, d.policy_version_id
FROM outbox o
JOIN intent i ON i.id = o.intent_id
JOIN event e ON e.id = i.event_id
JOIN contact c ON c.id = i.contact_id
JOIN decision d ON d.id = o.decision_id
WHERE o.attempt_id = ANY(%(ids)s::uuid[])
"""

# The decision in force, and when it was last taken again and found the same.
KEEP_DECISIONS = """
UPDATE outbox o SET decision_id = n.decision_id, held_at = %(now)s, gate_seen_at = n.gate_seen_at
FROM unnest(%(ids)s::uuid[], %(decisions)s::uuid[], %(seen)s::timestamptz[]) AS n (id, decision_id, gate_seen_at)
WHERE o.attempt_id = n.id
"""

DEFER = """
UPDATE outbox o SET due_at = n.due_at, reason = n.reason, lease = NULL, leased_until = NULL
FROM unnest(%(ids)s::uuid[], %(dues)s::timestamptz[], %(reasons)s::text[]) AS n (id, due_at, reason)
WHERE o.attempt_id = n.id
"""


def redecide(session: Session, books: Books, attempt_ids: Sequence[UUID], *, now: datetime) -> list[UUID]:
    """Decide each locked attempt; put off and close as the decisions say; return those that may go."""
    if not attempt_ids:
        return []
    facts = {row.attempt_id: row for row in rows(session, FACTS, ids=sorted(attempt_ids))}
    wishes = {i: _wish(books, i, facts[i]) for i in attempt_ids}
    gates = [(w.tenant_id, w.gate_hash) for w in wishes.values()]
    around = surroundings_of(session, pipelined(session, statements({w.tenant_id for w in wishes.values()}, gates, now=now)))
    decided = {i: decide_wish(wish, around, now=now) for i, wish in wishes.items()}
    in_force = _keep(session, books, facts, decided, now=now)
    _defer(session, books, {i: d for i, d in decided.items() if d.decision.verdict is Verdict.DEFER}, in_force, now=now)
    _close(session, books, {i: d for i, d in decided.items() if d.decision.verdict is Verdict.SUPPRESS}, in_force, now=now)
    return [i for i in attempt_ids if decided[i].decision.verdict is Verdict.ALLOW]


def _wish(books: Books, attempt_id: UUID, facts: Any) -> Wish:  # noqa: ANN401 - a row of FACTS
    intent = books.intents[books.attempts[attempt_id].intent_id]
    return Wish(
        tenant_id=intent.tenant_id,
        business_key=intent.business_key,
        channel=Channel(intent.channel),
        category=Category(intent.category),
        gate_hash=bytes(intent.gate_hash),
        country=facts.country,
        number_zones=tuple(facts.zones),
        declared_zone=intent.declared_zone,
        accepted_at=intent.accepted_at,
        expires_at=intent.expires_at,
        not_before=facts.not_before,
    )


def _keep(
    session: Session, books: Books, facts: dict[UUID, Any], decided: dict[UUID, Decided], *, now: datetime
) -> dict[UUID, UUID]:
    """Store each decision that tells something new; note the others as held. Return the one in force for each."""
    in_force, new = {}, []
    for attempt_id, d in decided.items():
        row = facts[attempt_id]
        before = Decision(
            Verdict(row.verdict),
            Reason(row.reason) if row.reason else None,
            row.decided_not_before,
            row.valid_until,
            row.evidence,
        )
        policy_id = d.policy.id if d.policy else None
        if policy_id == row.policy_version_id and same(before, d.decision):
            in_force[attempt_id] = row.decision_id
            continue
        in_force[attempt_id] = new_id()
        attempt = books.attempts[attempt_id]
        common = {"tenant_id": attempt.tenant_id, "event_id": attempt.event_id, "intent_id": attempt.intent_id}
        new.append(decision_row(common, attempt_id, in_force[attempt_id], d, moment="dispatch", now=now))
    ids = sorted(in_force)
    params = {
        "ids": ids,
        "decisions": [in_force[i] for i in ids],
        "seen": [decided[i].gate_seen_at for i in ids],
        "now": now,
    }
    keep = (KEEP_DECISIONS, params)
    pipelined(session, [insertion(DecisionRow, new), keep] if new else [keep])
    return in_force


def _defer(session: Session, books: Books, deferred: dict[UUID, Decided], in_force: dict[UUID, UUID], *, now: datetime) -> None:
    if not deferred:
        return
    ids = sorted(deferred)
    dues = [deferred[i].decision.not_before for i in ids]
    reasons = [str(deferred[i].decision.reason) for i in ids]
    rows(session, DEFER, ids=ids, dues=dues, reasons=reasons)
    changes = []
    for attempt_id, due, reason in zip(ids, dues, reasons, strict=True):
        intent = books.intents[books.attempts[attempt_id].intent_id]
        if (intent.state, intent.reason) == ("deferred", reason) and (intent.next_at == due or reason == Reason.NO_POLICY):
            continue  # nothing that anyone reads has changed; without a policy only our next look moves
        changes.append(
            change_of(
                books,
                attempt_id,
                intent,
                PublicState.DEFERRED,
                before=waiting_state(intent),
                reason=reason,
                cause="dispatch",
                cause_id=in_force[attempt_id],
                next_at=due,
            )
        )
    record(session, changes, now=now)


def _close(session: Session, books: Books, refused: dict[UUID, Decided], in_force: dict[UUID, UUID], *, now: datetime) -> None:
    closings = [
        Closing(books.attempts[i].intent_id, state, str(d.decision.reason), "dispatch", in_force[i])
        for i, d in refused.items()
        if (state := closing_state(d)) is not None
    ]
    if closings:
        close_intents(session, books, closings, now=now)
