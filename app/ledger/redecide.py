"""Decide claimed attempts again, now: allow, put off with a reason, or close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import as_page, insertion, rows, run_together
from app.ground.ids import new_id
from app.ledger.books import Books
from app.ledger.close import Closing, close_intents
from app.ledger.decide import Decided, Wish, decide_wish, needs_acceptance
from app.ledger.open import closing_state, decision_row
from app.ledger.surroundings import Surroundings, statements, surroundings_of
from app.ledger.transition import change_of, recording, waiting_state
from app.limits import Ask
from models.ledger import Decision as DecisionRow
from policy.decide import Decision
from policy.limits import Price
from policy.rates import Rate
from policy.replay import same
from policy.states import AttemptState, PublicState
from policy.words import Category, Channel, NumberType, Reason, Verdict

FACTS = """
SELECT o.attempt_id, c.country, c.zones, i.number_type, i.subdivisions, e.not_before, d.id AS decision_id, d.verdict, d.reason,
       d.not_before AS decided_not_before, d.valid_until, d.evidence, d.policy_version_id
FROM outbox o
JOIN event e ON e.id = o.event_id
JOIN intent i ON i.id = o.intent_id
JOIN contact c ON c.id = i.contact_id
JOIN decision d ON d.id = o.decision_id
WHERE o.attempt_id = ANY(%(ids)s::uuid[])
"""

# What a person had agreed to then; asked for only where a category goes by it.
ACCEPTED = """
SELECT DISTINCT ON (intent_id) intent_id, evidence FROM decision
WHERE intent_id = ANY(%(ids)s::uuid[]) AND moment = 'acceptance' ORDER BY intent_id, id
"""

DEFER = """
UPDATE outbox o SET due_at = n.due_at, reason = n.reason, lease = NULL, leased_until = NULL,
       decision_id = n.decision_id, gate_seen_at = n.gate_seen_at, held_at = %(now)s
FROM (SELECT * FROM json_to_recordset(%(new)s::json)
          AS n (attempt_id uuid, due_at timestamptz, reason text, decision_id uuid, gate_seen_at timestamptz) LIMIT %(count)s) n
WHERE o.attempt_id = n.attempt_id
"""


@dataclass(frozen=True, slots=True)
class Held:
    """The decision in force for an attempt, taken or found unchanged just now, and the gate's mark that it saw."""

    attempt_id: UUID
    decision_id: UUID
    gate_seen_at: datetime | None
    ask: Ask = field(default_factory=Ask)
    tenant_rate: Rate | None = None


def redecide(session: Session, books: Books, attempt_ids: Sequence[UUID], *, now: datetime) -> list[Held]:
    """Decide each locked attempt; put off and close as the decisions say; return those that may go, to be leased."""
    if not attempt_ids:
        return []
    intents = [books.intents[books.attempts[i].intent_id] for i in attempt_ids]
    gates = [(i.tenant_id, bytes(i.gate_hash)) for i in intents]
    reads = [(FACTS, {"ids": sorted(attempt_ids)}), *statements({i.tenant_id for i in intents}, gates, now=now)]
    found, *results = run_together(session, reads)
    facts = {row.attempt_id: row for row in found}
    around = surroundings_of(session, results)
    accepted = _accepted(session, around, intents)
    wishes = {i: _wish(books, i, facts[i], accepted, around) for i in attempt_ids}
    decided = {i: decide_wish(wish, around, now=now) for i, wish in wishes.items()}
    held = _keep(session, books, facts, decided, now=now)
    _defer(session, books, {i: d for i, d in decided.items() if d.decision.verdict is Verdict.DEFER}, held, now=now)
    _close(session, books, {i: d for i, d in decided.items() if d.decision.verdict is Verdict.SUPPRESS}, held, now=now)
    allowed = [i for i in attempt_ids if decided[i].decision.verdict is Verdict.ALLOW]
    return [_asking(books, held[i], decided[i], is_reply=wishes[i].confirms is not None) for i in allowed]


def _asking(books: Books, held: Held, decided: Decided, *, is_reply: bool) -> Held:
    """Add what the handoff will ask of the limits; who is left alone by no rule of the version need not be asked about.

    Nor is a reply: neither cooldown nor caps hold it.
    """
    attempt, document = books.attempts[held.attempt_id], decided.policy.document if decided.policy else None
    intent = books.intents[attempt.intent_id]
    cost = attempt.segment_count or 1
    if document is None:
        return replace(held, ask=Ask(cost))
    if is_reply or not (document.categories[Category(intent.category)].cooldown or document.longest_cap):
        return replace(held, ask=Ask(cost), tenant_rate=document.rate)
    ask = Ask.about(
        cost=cost,
        tenant_id=intent.tenant_id,
        gate_hash=bytes(intent.gate_hash),
        category=intent.category,
        business_key=intent.business_key,
    )
    return replace(held, ask=ask, tenant_rate=document.rate)


def _accepted(session: Session, around: Surroundings, intents: Sequence[Any]) -> Mapping[UUID, Any]:
    """Read the evidence of acceptance for the intents whose category goes by it."""
    policies = around.policies
    ids = [
        intent.id
        for intent in intents
        if (policy := policies.get(intent.tenant_id)) and needs_acceptance(policy.document, Category(intent.category))
    ]
    return {row.intent_id: row.evidence for row in rows(session, ACCEPTED, ids=sorted(ids))} if ids else {}


def _wish(books: Books, attempt_id: UUID, facts: Any, accepted: Mapping[UUID, Any], around: Surroundings) -> Wish:  # noqa: ANN401 - a row of FACTS
    attempt = books.attempts[attempt_id]
    intent = books.intents[attempt.intent_id]
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
        expires_at=_ends_at(books, intent, around),
        not_before=facts.not_before,
        segment_count=attempt.segment_count,
        price=None if attempt.price is None else Price(attempt.price, attempt.currency),
        number_type=NumberType(facts.number_type) if facts.number_type else None,
        subdivisions=tuple(facts.subdivisions or ()),
        recipient_version=facts.evidence["facts"].get("recipient_version"),  # the zone is that of acceptance
        route_id=attempt.route_id,
        accepted_on=accepted.get(intent.id),
        confirms=facts.evidence["facts"].get("confirms"),
    )


def _ends_at(books: Books, intent: Any, around: Surroundings) -> datetime:  # noqa: ANN401 - a locked row
    """Say when it is too late for an intent: what is tried again after a failure also has the retry window's end.

    What follows an attempt in doubt does so by a rule or a person who knew what time it was.
    """
    *before, _ = books.attempts_of(intent.id)
    policy = around.policies.get(intent.tenant_id)
    rules = policy.document.categories.get(Category(intent.category)) if policy else None
    if not before or before[-1].state != AttemptState.FAILED or rules is None:
        return intent.expires_at  # type: ignore[no-any-return]  # a row's timestamp
    return min(intent.expires_at, intent.accepted_at + rules.retry.window)  # type: ignore[no-any-return]  # and another


def _keep(
    session: Session, books: Books, facts: dict[UUID, Any], decided: dict[UUID, Decided], *, now: datetime
) -> dict[UUID, Held]:
    """Store each decision that tells something new; the others are held. Return the one in force for each."""
    held, new = {}, []
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
            held[attempt_id] = Held(attempt_id, row.decision_id, d.gate_seen_at)
            continue
        held[attempt_id] = Held(attempt_id, new_id(), d.gate_seen_at)
        attempt = books.attempts[attempt_id]
        common = {"tenant_id": attempt.tenant_id, "event_id": attempt.event_id, "intent_id": attempt.intent_id}
        new.append(decision_row(common, attempt_id, held[attempt_id].decision_id, d, moment="dispatch", now=now))
    if new:
        run_together(session, [insertion(DecisionRow, new)])
    return held


def _defer(session: Session, books: Books, deferred: dict[UUID, Decided], held: dict[UUID, Held], *, now: datetime) -> None:
    if not deferred:
        return
    moved, changes = [], []
    for attempt_id, d in sorted(deferred.items()):
        due, reason = d.decision.not_before, str(d.decision.reason)
        seen = {"decision_id": held[attempt_id].decision_id, "gate_seen_at": d.gate_seen_at}
        moved.append({"attempt_id": attempt_id, "due_at": due, "reason": reason, **seen})
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
                cause_id=held[attempt_id].decision_id,
                next_at=due,
            )
        )
    run_together(session, [(DEFER, {**as_page(moved), "now": now}), *recording(changes, now=now)])


def _close(session: Session, books: Books, refused: dict[UUID, Decided], held: dict[UUID, Held], *, now: datetime) -> None:
    closings = [
        Closing(books.attempts[i].intent_id, state, str(d.decision.reason), "dispatch", held[i].decision_id)
        for i, d in refused.items()
        if (state := closing_state(d)) is not None
    ]
    if closings:
        close_intents(session, books, closings, now=now)
