"""What a state means for its intent: transitions, retry or close, the gate, a stopped route, a review."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Receipts
from app.ground.db import as_page, insertion, rows, run_together
from app.ground.ids import AttemptId, new_id
from app.ledger.again import Further, write_again
from app.ledger.books import Books, lock_gates
from app.ledger.close import CLEAR_OUTBOX, end_intents
from app.ledger.heard import Heard, Standing, as_heard, contacted_twice, may_arrive, public_before
from app.ledger.policies import read_policies
from app.ledger.review import open_reviews
from app.ledger.routes import read_routes
from app.ledger.state import close as close_attempts
from app.ledger.transition import Change, change_of, record, waiting_state
from app.people.suppress import suppress
from models.rules import Pause
from policy.document import AtHorizon, CategoryRules, NotFound, Unheard
from policy.states import PUBLIC, AttemptState, PublicState
from policy.words import AllowedBy, Category, ErrorClass, Reason, Source

PINNED = """
SELECT a.id, d.policy_version_id FROM attempt a JOIN decision d ON d.id = a.decision_id
WHERE a.id = ANY(%(ids)s::uuid[])
"""

# Freed by a certain non-handoff only: the slot by the attempt that has it, and what the caps count by the one that
# was counted at that instant. One row per gate: of several that fit, an UPDATE takes one and forgets the rest.
FREE_SLOTS = """
UPDATE gate g SET changed_at = %(now)s, slots = coalesce((
    SELECT jsonb_object_agg(s.key, CASE WHEN s.key <> 'contacted' THEN s.value ELSE (
               SELECT coalesce(jsonb_agg(c.told ORDER BY c.n), '[]')
               FROM jsonb_array_elements(s.value) WITH ORDINALITY AS c (told, n)
               WHERE NOT EXISTS (SELECT FROM unnest(free.keys, free.ats) AS f (key, at)
                                 WHERE f.key = c.told ->> 'business_key' AND f.at = (c.told ->> 'at')::timestamptz)) END)
    FROM jsonb_each(g.slots) s
    WHERE s.key = 'contacted' OR s.value ->> 'attempt_id' <> ALL(free.attempts)), '{}')
FROM (SELECT tenant_id, address_hash, array_agg(attempt_id) AS attempts, array_agg(business_key) AS keys,
             array_agg(prepared_at) AS ats
      FROM (SELECT * FROM json_to_recordset(%(new)s::json)
                AS n (tenant_id uuid, address_hash bytea, attempt_id text, business_key text, prepared_at timestamptz)
            LIMIT %(count)s) n
      GROUP BY tenant_id, address_hash) free
WHERE g.tenant_id = free.tenant_id AND g.address_hash = free.address_hash
"""

WAIT = """
UPDATE attempt a SET unheard_at = n.at FROM unnest(%(ids)s::uuid[], %(ats)s::timestamptz[]) AS n (id, at) WHERE a.id = n.id
"""

# The carrier's word on what it had taken: not its answer to the send, nor a person's.
FAILED_LATER = """
SELECT id FROM observation
WHERE attempt_id = %(id)s AND state = 'failed' AND source IN ('receipt', 'poll', 'lookup') LIMIT 1
"""

HOLD = """
UPDATE outbox SET due_at = greatest(due_at, %(until)s), lease = NULL, leased_until = NULL, reason = 'earlier_attempt'
WHERE attempt_id = %(id)s
"""

SETTLE_SECOND = """
UPDATE review SET settled_at = %(now)s, settled_as = 'heard'
WHERE intent_id = %(id)s AND settled_at IS NULL AND cause = 'second_handoff'
"""

STOP_ONCE = "ON CONFLICT (route_id) WHERE ended_at IS NULL AND cause = 'auth_config' DO NOTHING"


@dataclass(slots=True)
class Desk:
    """One transaction's consequences: collected intent by intent, written together."""

    session: Session
    books: Books
    heard: dict[UUID, Heard]
    now: datetime
    rules: dict[UUID, CategoryRules] = field(default_factory=dict)
    endings: dict[UUID, str] = field(default_factory=dict)
    reviews: dict[UUID, str] = field(default_factory=dict)
    waits: dict[UUID, datetime] = field(default_factory=dict)
    later: list[Change] = field(default_factory=list)
    further: Further = field(init=False)

    def __post_init__(self) -> None:
        self.rules = self._pinned_rules()
        self.further = Further(self.session, self.books, self.heard, self.now)

    def _pinned_rules(self) -> dict[UUID, CategoryRules]:
        """Read the rules that admitted each attempt whose end or doubt a rule must answer for."""
        asking = [i for i, h in self.heard.items() if h.state in {AttemptState.FAILED, AttemptState.UNKNOWN} and h.applied]
        if not asking:
            return {}
        return self._rules_of(asking)

    def _rules_of(self, attempt_ids: Sequence[UUID]) -> dict[UUID, CategoryRules]:
        pinned = {row.id: row.policy_version_id for row in rows(self.session, PINNED, ids=sorted(attempt_ids))}
        policies = read_policies(self.session, pinned.values())
        return {
            i: policies[version].document.categories[Category(self.books.intents[self.books.attempts[i].intent_id].category)]
            for i, version in pinned.items()
            if version in policies
        }

    def state_of(self, attempt: Any) -> AttemptState:  # noqa: ANN401 - a locked row
        """Give an attempt's state as it is now."""
        return self.heard[attempt.id].state if attempt.id in self.heard else AttemptState(attempt.state)

    def draw_consequences(self) -> None:
        """After the transitions: let each intent retry, wait, close or go to review."""
        self.stop_routes()
        self.suppress_opted_out()
        self.free_slots()
        self.further.look_for_ways(self.rules)
        for intent_id in sorted({h.attempt.intent_id for h in self.heard.values()}):
            self.settle(intent_id)
        self.write()

    def changes(self) -> list[Change]:
        """Give one transition per applied report."""
        return [change for heard in self.heard.values() for change in self._changes(heard)]

    def _changes(self, heard: Heard) -> list[Change]:
        intent = self.books.intents[heard.attempt.intent_id]
        attempts = self.books.attempts_of(intent.id)
        delivered = any(self.state_of(a) is AttemptState.DELIVERED for a in attempts)
        speaks = heard.state is AttemptState.DELIVERED or (not delivered and attempts[-1].id == heard.attempt.id)
        before = public_before(heard.attempt, intent)
        changes = []
        for told in heard.applied:
            public = PUBLIC[told.state]
            reason = Reason.DELIVERED if public is PublicState.DELIVERED else told.reason or told.error_class
            if public is PublicState.FAILED and reason is None:
                reason = ErrorClass.UNCLASSIFIED
            change = change_of(
                self.books,
                heard.attempt.id,
                intent,
                public,
                before=before,
                reason=reason,
                cause=told.source,
                cause_id=told.id,
                speaks=speaks,
            )
            changes.append(change)
            before = public
        return changes

    def stop_routes(self) -> None:
        """Stop each route whose credentials were refused; many refusals are one fact."""
        refused = {
            h.attempt.route_id: h.attempt.tenant_id
            for h in self.heard.values()
            for t in h.told
            if t.error_class is ErrorClass.AUTH_CONFIG and h.attempt.route_id is not None
        }
        if refused:
            pauses = [
                {
                    "id": new_id(),
                    "tenant_id": refused[route_id],
                    "route_id": route_id,
                    "lane": None,
                    "category": None,
                    "country": None,
                    "cause": ErrorClass.AUTH_CONFIG,
                    "started_by": "daybook",
                    "started_at": self.now,
                    "ended_by": None,
                    "ended_at": None,
                }
                for route_id in sorted(refused)
            ]
            run_together(self.session, [insertion(Pause, pauses, tail=STOP_ONCE)])

    def suppress_opted_out(self) -> None:
        """Follow the evidence, not the verdict: a carrier's opt-out counts also in a stale or repeated report."""
        told_of = [
            (told, self.books.intents[h.attempt.intent_id])
            for h in self.heard.values()
            for told in h.told
            if told.error_class is ErrorClass.OPTED_OUT
        ]
        # In the order of the gates, which it locks: two pages may speak of the same people.
        for told, intent in sorted(told_of, key=lambda pair: (pair[1].tenant_id, bytes(pair[1].gate_hash), pair[0].id)):
            suppress(
                self.session,
                tenant_id=intent.tenant_id,
                channel=intent.channel,
                address_hash=bytes(intent.gate_hash),
                source="carrier",
                cause_id=told.id,
                now=self.now,
            )

    def free_slots(self) -> None:
        """Give the gate's slot back, and what its caps counted, where nothing was taken, for certain."""
        free = [
            h
            for h in self.heard.values()
            if h.state is AttemptState.FAILED and h.applied and not h.taken and not self._may_have_reached(h.attempt)
        ]
        if free:
            intents = [self.books.intents[h.attempt.intent_id] for h in free]
            lock_gates(self.session, {(i.tenant_id, bytes(i.gate_hash)) for i in intents})
            new = [
                {
                    "tenant_id": i.tenant_id,
                    "address_hash": i.gate_hash,
                    "attempt_id": h.attempt.id,
                    "business_key": i.business_key,
                    "prepared_at": h.attempt.prepared_at,
                }
                for i, h in zip(intents, free, strict=True)
            ]
            rows(self.session, FREE_SLOTS, **as_page(new), now=self.now)

    def _may_have_reached(self, attempt: Any) -> bool:  # noqa: ANN401 - a locked row
        """Say whether another attempt of the intent was, or may have been, taken: the person's cooldown is that one's."""
        others = [Standing.of(a, self.heard.get(a.id)) for a in self.books.attempts_of(attempt.intent_id) if a.id != attempt.id]
        return any(other.taken or other.state in {AttemptState.PREPARED, AttemptState.UNKNOWN} for other in others)

    def settle(self, intent_id: UUID) -> None:
        """Decide what follows for one intent."""
        attempts = self.books.attempts_of(intent_id)
        heard = [self.heard[a.id] for a in attempts if a.id in self.heard]
        queued = [a for a in attempts if self.state_of(a) is AttemptState.QUEUED]
        if any(self.state_of(a) is AttemptState.DELIVERED for a in attempts):
            self._settle_delivered(intent_id, attempts, heard, queued)
            return
        for h in heard:
            if queued and h.attempt.id != queued[0].id and self._may_arrive(h):
                self._hold(intent_id, queued[0], h)
        last = self.heard.get(attempts[-1].id)
        if last is None or not last.applied or self.books.intents[intent_id].closed_at is not None:
            return
        if last.state is AttemptState.FAILED:
            self._settle_failed(intent_id, last)
        elif last.state is AttemptState.UNKNOWN:
            self._settle_unknown(intent_id, last)

    def _settle_delivered(self, intent_id: UUID, attempts: Sequence[Any], heard: Sequence[Heard], queued: Sequence[Any]) -> None:
        intent = self.books.intents[intent_id]
        for attempt in queued:
            close_attempts(self.session, [(AttemptId(attempt.id), AttemptState.CANCELLED)], now=self.now)
            rows(self.session, CLEAR_OUTBOX, ids=[attempt.id])
            cause = next((h.applied[-1].id for h in heard if h.applied), None)
            change = change_of(
                self.books,
                attempt.id,
                intent,
                PublicState.CANCELLED,
                before=waiting_state(intent),
                reason=Reason.DELIVERED,
                cause=Source.RECEIPT,
                cause_id=cause,
                speaks=False,
            )
            self.later.append(change)
        if intent.closed_at is None:
            self.endings[intent_id] = Reason.DELIVERED
        after = [Standing.of(a, self.heard.get(a.id)) for a in attempts]
        was_twice = contacted_twice([Standing.of(a) for a in attempts])
        if was_twice and not contacted_twice(after):  # the other one never left after all
            rows(self.session, SETTLE_SECOND, id=intent_id, now=self.now)
        if contacted_twice(after) and not was_twice:
            arrived = next(a for a in after if a.state == AttemptState.DELIVERED)
            self.reviews[arrived.id] = "second_handoff"

    def _may_arrive(self, heard: Heard) -> bool:
        """Say whether what was told means that the message may still arrive, or did.

        That the carrier took it, told in its answer, is older than its later word that it failed, whichever is stored first.
        """
        arriving = [t for t in heard.told if may_arrive(t)]
        if heard.state is not AttemptState.FAILED or any(
            t.state is AttemptState.DELIVERED or t.source is not Source.ANSWER for t in arriving
        ):
            return bool(arriving)
        return bool(arriving) and not rows(self.session, FAILED_LATER, id=heard.attempt.id)

    def _hold(self, intent_id: UUID, retry: Any, heard: Heard) -> None:  # noqa: ANN401 - a locked row
        """Hold a queued retry while the earlier attempt, which the carrier has after all, may still arrive."""
        intent = self.books.intents[intent_id]
        until = heard.attempt.horizon_at or self.now
        rows(self.session, HOLD, id=retry.id, until=until)
        if intent.reason != Reason.EARLIER_ATTEMPT:
            told = heard.told[-1]
            change = change_of(
                self.books,
                retry.id,
                intent,
                PublicState.DEFERRED,
                before=waiting_state(intent),
                reason=Reason.EARLIER_ATTEMPT,
                cause=told.source,
                cause_id=told.id,
                next_at=until,
            )
            self.later.append(change)

    def _settle_failed(self, intent_id: UUID, last: Heard) -> None:
        intent = self.books.intents[intent_id]
        error_class = last.error_class or ErrorClass.UNCLASSIFIED
        rules, told = self.rules.get(last.attempt.id), last.applied[-1]
        # A failure may have a reason instead of a class: a person said so, or the carrier dropped it because we asked.
        ending = told.reason or error_class
        # A person who wants another attempt says so.
        if rules is None or intent.close_requested_at is not None or told.source is Source.OPERATOR:
            self.endings[intent_id] = ending
            return
        if not self.further.retry(intent, last, rules):
            self.endings[intent_id] = ending

    def resend(self, asked: Mapping[UUID, UUID]) -> None:
        """Try these locked attempts again although nobody knows of them: a person said so (attempt id -> the action's)."""
        rules = self._rules_of(sorted(asked)) if asked else {}
        for attempt_id, action_id in sorted(asked.items()):
            attempt = self.books.attempts[attempt_id]
            intent = self.books.intents[attempt.intent_id]
            self.further.add(intent, attempt, rules.get(attempt_id), self.now, allowed_by=AllowedBy.PERSON, action_id=action_id)

    def _settle_unknown(self, intent_id: UUID, last: Heard) -> None:
        attempt, rules = last.attempt, self.rules.get(last.attempt.id)
        if attempt.horizon_at is not None and self.now >= attempt.horizon_at:
            self._end_in_doubt(intent_id, attempt, rules)
        elif rules is not None and rules.ambiguity.waited is not None and not last.taken:
            self.waits[attempt.id] = (attempt.prepared_at or self.now) + rules.ambiguity.waited.after

    def settle_horizon(self, attempt: Any) -> None:  # noqa: ANN401 - a locked row
        """Follow the rule for an attempt in doubt that reached its horizon, unless a later one goes on."""
        intent = self.books.intents[attempt.intent_id]
        if intent.closed_at is None and self.books.attempts_of(intent.id)[-1].id == attempt.id:
            self._end_in_doubt(intent.id, attempt, self._rules_of([attempt.id]).get(attempt.id))

    def _end_in_doubt(self, intent_id: UUID, attempt: Any, rules: CategoryRules | None) -> None:  # noqa: ANN401 - a locked row
        """Close where no receipt was ever to be expected or the rule says so, else ask a person."""
        route = read_routes(self.session, [attempt.route_id])[attempt.route_id]
        if route.capabilities.receipts is not Receipts.RELIABLE:
            self.endings[intent_id] = Reason.NO_RECEIPT
        elif rules is None or rules.ambiguity.horizon is AtHorizon.CLOSE:
            self.endings[intent_id] = Reason.HORIZON
        else:
            self.reviews[attempt.id] = Reason.HORIZON

    def settle_not_found(self, attempt: Any) -> None:  # noqa: ANN401 - a locked row
        """Follow the pinned rule for an attempt that a conclusive look-up did not find, asked twice."""
        intent = self.books.intents[attempt.intent_id]
        attempts = self.books.attempts_of(intent.id)
        if intent.closed_at is not None or attempts[-1].id != attempt.id:
            return
        rules = self._rules_of([attempt.id]).get(attempt.id)
        rule = rules.ambiguity.not_found if rules else NotFound.REVIEW
        if rule is NotFound.REVIEW:
            self.reviews[attempt.id] = Reason.NOT_FOUND
        elif rules is None or rule is NotFound.CLOSE or not self.further.resend(intent, attempt, rules, AllowedBy.NOT_FOUND):
            self.endings[intent.id] = Reason.NOT_FOUND

    def settle_unheard(self, attempts: Sequence[Any]) -> None:
        """Follow the pinned rule for attempts in doubt that stayed silent for as long as it waits."""
        pinned = self._rules_of([a.id for a in attempts]) if attempts else {}
        for attempt in attempts:
            rules, intent = pinned.get(attempt.id), self.books.intents[attempt.intent_id]
            if rules is None or rules.ambiguity.waited is None:
                continue
            then = rules.ambiguity.waited.then
            if then is Unheard.REVIEW:
                self.reviews[attempt.id] = Reason.NOT_HEARD
            elif then is Unheard.CLOSE or not self.further.resend(intent, attempt, rules, AllowedBy.WAITED):
                self.endings[intent.id] = Reason.NOT_HEARD

    def write(self) -> None:
        """Write when rules answer, then retries, then the transitions that follow, then endings and reviews."""
        if self.waits:
            ids = sorted(self.waits)
            rows(self.session, WAIT, ids=ids, ats=[self.waits[i] for i in ids])
        if self.further.attempts:
            write_again(self.session, self.further.attempts, now=self.now)
        record(self.session, [*self.later, *(again.change for again in self.further.attempts)], now=self.now)
        if self.endings:
            end_intents(self.session, as_heard(self.books, self.heard), self.endings, now=self.now)
        if self.reviews:
            open_reviews(self.session, self.books, self.reviews, now=self.now)
