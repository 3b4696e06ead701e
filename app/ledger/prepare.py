"""Prepare is the gate: whoever commits `prepared` here may write to the carrier, nobody else ever."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Submission
from app.ground.db import Statement, as_page, rows, run_together
from app.ground.errors import DaybookError
from app.ground.ids import AttemptId, IntentId, Lease
from app.ground.keys import keyed_hash, lasting_hash, same_bytes
from app.ledger import state
from app.ledger.books import Books, books_of, locks_of
from app.ledger.close import Closing, close_intents
from app.ledger.decide import REPLY, remember, slot_of
from app.ledger.policies import InForce, read_policies
from app.ledger.review import park
from app.ledger.routes import Route, read_routes
from app.ledger.spend import ELSEWHERE, Item, Spending
from app.ledger.surroundings import CONTACTED, Surroundings, grouped
from app.ledger.templates import TemplateKey, Texts, read_templates
from app.people.vault import open_vault_key
from app.render import body_for, render
from policy.gate import Admitted, Held, Slot, admit
from policy.states import AttemptState
from policy.words import Category, Reason, Verdict

# The person's row is made here, before the first handoff; nothing else may be first.
MAKE_GATES = """
INSERT INTO gate (tenant_id, address_hash, hash_key_id, slots, suppressed_at, changed_at)
SELECT DISTINCT i.tenant_id, i.gate_hash, %(hash_key)s, '{}'::jsonb, NULL::timestamptz, %(now)s::timestamptz
FROM attempt a JOIN intent i ON i.id = a.intent_id
WHERE a.id = ANY(%(attempts)s::uuid[]) ORDER BY i.tenant_id, i.gate_hash
ON CONFLICT DO NOTHING
"""

LOCK_GATES = """
SELECT tenant_id, address_hash, slots, suppressed_at FROM gate
WHERE (tenant_id, address_hash) IN (
    SELECT i.tenant_id, i.gate_hash FROM attempt a JOIN intent i ON i.id = a.intent_id WHERE a.id = ANY(%(attempts)s::uuid[]))
ORDER BY tenant_id, address_hash FOR UPDATE
"""

# Read after the locks, so that nothing here is older than what they guard.
FACTS = """
SELECT o.attempt_id, o.gate_seen_at, d.evidence -> 'facts' -> 'contacted' AS counted, d.id AS decision_id, d.verdict,
       d.valid_until, d.policy_version_id, c.country, c.sealed_address, k.id AS key_id, k.wrapped_key, e.payload,
       e.tenant_id, e.template_name, e.template_version, e.source
FROM outbox o
JOIN decision d ON d.id = o.decision_id
JOIN event e ON e.id = o.event_id
JOIN intent i ON i.id = o.intent_id
JOIN contact c ON c.id = i.contact_id
JOIN person_key k ON k.id = c.person_key_id
WHERE o.attempt_id = ANY(%(attempts)s::uuid[])
"""

PAUSES = """
SELECT tenant_id, route_id, lane, category, country, cause FROM pause
WHERE ended_at IS NULL AND tenant_id IN (SELECT tenant_id FROM attempt WHERE id = ANY(%(attempts)s::uuid[]))
"""

TAKE_SLOTS = """
UPDATE gate g SET slots = g.slots || n.slots, changed_at = %(now)s
FROM (SELECT * FROM json_to_recordset(%(new)s::json) AS n (tenant_id uuid, address_hash bytea, slots jsonb) LIMIT %(count)s) n
WHERE g.tenant_id = n.tenant_id AND g.address_hash = n.address_hash
"""

TAKE_OUT = "DELETE FROM outbox WHERE attempt_id = ANY(%(ids)s::uuid[])"

# Back to be decided again: the next claim sees the facts that held it, and writes them down.
PUT_BACK = """
UPDATE outbox SET lease = NULL, leased_until = NULL, lost_lease_count = 0, due_at = %(now)s
WHERE attempt_id = ANY(%(ids)s::uuid[]) AND lease = %(lease)s
"""

# What a worker may need from the end of H until its answer is stored: read time-outs fit inside H,
# so an answer that comes later than this is that of a process which stopped in between.
ANSWER_WITHIN: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Handoff:
    """An attempt whose `prepared` is about to be committed: what to send, where, and until when."""

    attempt_id: AttemptId
    intent_id: IntentId
    route: Route
    submission: Submission
    deadline: float
    """CLOCK_BOOTTIME in seconds; nothing is written to the carrier after it."""
    slot_for: timedelta = timedelta()
    """How long the gate keeps others of the category away from this person."""
    told_for: timedelta = timedelta()
    """How long the gate remembers this handoff for the caps; nothing where there are none."""


@dataclass(slots=True)
class Prepared:
    """What prepare made of a few leased attempts."""

    handoffs: list[Handoff] = field(default_factory=list)
    put_back: dict[UUID, Reason] = field(default_factory=dict)
    parked: set[UUID] = field(default_factory=set)
    closed: set[UUID] = field(default_factory=set)
    """Attempts with less time left than the carrier can be told."""
    tripped: list[tuple[UUID, str]] = field(default_factory=list)
    """Routes, and the countries in which their breakers stopped them."""


def prepare(
    session: Session, attempt_ids: Sequence[AttemptId], *, lease: Lease, handoff_for: timedelta, boottime: float, now: datetime
) -> Prepared:
    """Admit leased attempts, put the held ones back, park those that cannot be rendered, close those that are too late.

    `boottime` was read before `now`: a deadline counted from it never lies later than one counted from `now`.
    """
    page = _lock_and_read(session, attempt_ids, lease=lease, handoff_for=handoff_for, boottime=boottime, now=now)
    for attempt_id, row in sorted(page.books.outbox.items()):
        if attempt_id in page.asked and row.lease == lease and row.leased_until > now:
            page.judge(attempt_id)
    page.write(session)
    return page.result


def _lock_and_read(
    session: Session, attempt_ids: Sequence[AttemptId], *, lease: Lease, handoff_for: timedelta, boottime: float, now: datetime
) -> _Page:
    asked = {"attempts": sorted(attempt_ids)}
    statements: list[Statement] = [
        *locks_of(attempt_ids),
        (MAKE_GATES, asked | {"hash_key": lasting_hash("gate", b"").key_id, "now": now}),
        (LOCK_GATES, asked),
        (FACTS, asked),
        (PAUSES, asked),
    ]
    *locked, _, gates, facts, pauses = run_together(session, statements)
    books = books_of(locked)
    policies = read_policies(session, {f.policy_version_id for f in facts})
    capped = {f.tenant_id for f in facts if (p := policies.get(f.policy_version_id)) is not None and p.document.caps_spend}
    return _Page(
        asked=frozenset(attempt_ids),
        books=books,
        gates={(g.tenant_id, bytes(g.address_hash)): g for g in gates},
        facts={f.attempt_id: f for f in facts},
        around=Surroundings({}, {}, {}, {}, grouped(pauses, lambda p: p.tenant_id)),
        routes=read_routes(session, {a.route_id for a in books.attempts.values() if a.route_id}),
        policies=policies,
        spending=Spending.under_lock(session, capped, now=now),
        templates=read_templates(session, {(f.tenant_id, f.template_name, f.template_version) for f in facts}),
        lease=lease,
        handoff_for=handoff_for,
        boottime=boottime,
        now=now,
    )


@dataclass(slots=True)
class _Page:
    """A few attempts being judged in order; each sees the slots that those before it took."""

    asked: frozenset[UUID]
    books: Books
    gates: dict[tuple[UUID, bytes], Any]
    facts: dict[UUID, Any]
    around: Surroundings
    routes: Mapping[UUID, Route]
    policies: Mapping[UUID, InForce]
    templates: Mapping[TemplateKey, Texts]
    spending: Spending
    lease: Lease
    handoff_for: timedelta
    boottime: float
    now: datetime
    result: Prepared = field(default_factory=Prepared)
    beginnings: list[state.Beginning] = field(default_factory=list)
    slots: dict[tuple[UUID, bytes], dict[str, Any]] = field(default_factory=dict)
    broken: dict[UUID, Reason] = field(default_factory=dict)

    def judge(self, attempt_id: UUID) -> None:
        """Admit one attempt, or say why it goes back."""
        attempt, facts = self.books.attempts[attempt_id], self.facts[attempt_id]
        intent = self.books.intents[attempt.intent_id]
        gate_key = (intent.tenant_id, bytes(intent.gate_hash))
        if held := self._held(attempt, intent, facts):
            self.result.put_back[attempt_id] = held
            return
        if intent.expires_at - self.now < self.routes[attempt.route_id].capabilities.shortest_validity:
            # The carrier could not be told to stop in time, and no later moment would be better.
            self.result.closed.add(attempt_id)
            return
        match self._admit(intent, facts, gate_key):
            case Held(reason=reason):
                self.result.put_back[attempt_id] = reason
            case Admitted(slot=slot):
                self._pay(attempt, intent, facts, slot)

    def _pay(self, attempt: Any, intent: Any, facts: Any, slot: Slot) -> None:  # noqa: ANN401 - rows
        """Begin what the tenant may still spend; where no version caps that, nothing is counted."""
        document = self.policies[facts.policy_version_id].document
        if attempt.price is None or not document.caps_spend:
            self._begin(attempt, intent, facts, slot)
            return
        item = Item(intent.tenant_id, attempt.route_id, facts.country or ELSEWHERE, attempt.price, attempt.currency)
        if held := self.spending.held(document, item):
            self.result.put_back[attempt.id] = held
        elif self._begin(attempt, intent, facts, slot):
            self.spending.add(item)

    def _begin(self, attempt: Any, intent: Any, facts: Any, slot: Slot) -> bool:  # noqa: ANN401 - rows
        """Lay out one handoff; False where its text cannot be rendered."""
        route = self.routes[attempt.route_id]
        attempt_id = attempt.id
        try:
            submission = self._render(attempt, intent, facts)
        except DaybookError:
            # The vault or the template refuses this row; the others go on. The review names it.
            self.broken[attempt_id] = Reason.ARTIFACT_MISMATCH
            return False
        slot_for = told_for = timedelta()
        if facts.source != REPLY:
            slot_for, told_for = slot.until - self.now, self._take_slot(attempt_id, intent, facts, slot)
        ends_at = min(self.now + self.handoff_for, facts.valid_until or intent.expires_at, intent.expires_at)
        self.beginnings.append(
            state.Beginning(
                AttemptId(attempt_id),
                facts.decision_id,
                self.now + self.handoff_for + ANSWER_WITHIN,
                self.now + self._horizon_for(intent, facts, route),
            )
        )
        deadline = self.boottime + (ends_at - self.now).total_seconds()
        self.result.handoffs.append(
            Handoff(
                AttemptId(attempt_id),
                IntentId(intent.id),
                route,
                submission,
                deadline,
                slot_for=slot_for,
                told_for=told_for,
            )
        )
        return True

    def _take_slot(self, attempt_id: UUID, intent: Any, facts: Any, slot: Slot) -> timedelta:  # noqa: ANN401 - rows
        """Take the category's slot on the gate; say for how long the gate remembers this handoff for the caps."""
        gate_key = (intent.tenant_id, bytes(intent.gate_hash))
        told = self._contacted(gate_key)
        slots = self.slots.setdefault(gate_key, {})
        slots[intent.category] = _slot_json(slot, attempt_id)
        longest = self.policies[facts.policy_version_id].document.longest_cap
        if longest is not None:
            slots[CONTACTED] = remember(
                told, business_key=intent.business_key, category=intent.category, longest=longest, now=self.now
            )
        return longest or timedelta()

    def _horizon_for(self, intent: Any, facts: Any, route: Route) -> timedelta:  # noqa: ANN401 - rows
        """Say for how long the carrier may be asked: no longer than the rules want to know, nor than it remembers."""
        rules = self.policies[facts.policy_version_id].document.categories[Category(intent.category)]
        return min(rules.horizon or route.horizon_for, route.horizon_for)

    def _held(self, attempt: Any, intent: Any, facts: Any) -> Reason | None:  # noqa: ANN401 - rows
        outbox, country = self.books.outbox[attempt.id], facts.country or ELSEWHERE
        if attempt.state != AttemptState.QUEUED or intent.closed_at is not None or intent.close_requested_at is not None:
            return Reason.CANCELLED
        if intent.expires_at <= self.now:
            return Reason.EXPIRED
        if facts.verdict != Verdict.ALLOW or (facts.valid_until is not None and facts.valid_until <= self.now):
            return Reason.OUTSIDE_WINDOW
        if self.around.is_stopped(intent.tenant_id, attempt.route_id, country=country):
            return Reason.ROUTE_STOPPED
        if self.around.is_paused(intent.tenant_id, lane=outbox.lane, category=intent.category, country=country):
            return Reason.PAUSED
        return None

    def _admit(self, intent: Any, facts: Any, gate_key: tuple[UUID, bytes]) -> Admitted | Held:  # noqa: ANN401 - rows
        gate = self.gates[gate_key]
        slots = {**gate.slots, **self.slots.get(gate_key, {})}
        rules = self.policies[facts.policy_version_id].document.categories[Category(intent.category)]
        # Told apart by identity, not by order: a handoff that waited for its commit carries a time before the decision
        # that could not see it.
        counted = {datetime.fromisoformat(each["at"]) for each in facts.counted or ()}
        is_reply = facts.source == REPLY  # it was asked of the suppressions alone, and takes nobody's turn
        if not is_reply and any(
            each["business_key"] != intent.business_key and datetime.fromisoformat(each["at"]) not in counted
            for each in self._contacted(gate_key)
        ):
            return Held(Reason.FREQUENCY_CAP, None)  # the decision did not count it
        return admit(
            business_key=intent.business_key,
            cooldown=rules.cooldown,
            slot=None if is_reply else slot_of(slots, intent.category),
            suppressed_at=gate.suppressed_at,
            seen_suppressed_at=facts.gate_seen_at,
            now=self.now,
        )

    def _contacted(self, gate_key: tuple[UUID, bytes]) -> Sequence[Mapping[str, str]]:
        """Give the handoffs that the gate remembers, with those of this page."""
        slots = {**self.gates[gate_key].slots, **self.slots.get(gate_key, {})}
        told: Sequence[Mapping[str, str]] = slots.get(CONTACTED, ())
        return told

    def _render(self, attempt: Any, intent: Any, facts: Any) -> Submission:  # noqa: ANN401 - rows
        key = open_vault_key(facts.key_id, facts.wrapped_key)
        payload = key.open(facts.payload)
        texts = self.templates[facts.tenant_id, facts.template_name, facts.template_version]
        text = body_for(texts.bodies, locale=payload["locale"], default_locale=texts.default_locale)
        body = render(text, payload["data"])
        if not same_bytes(keyed_hash("body", body.encode(), key_id=attempt.hash_key_id).digest, bytes(attempt.body_hash)):
            raise ArtifactMismatch("the text is not the one that was accepted")
        address: str = key.open(facts.sealed_address)
        return Submission(attempt.attempt_key, address, body, intent.expires_at - self.now)

    def write(self, session: Session) -> None:
        """Write the page: begin and take out what was admitted, put back what was held, park what is broken."""
        if self.beginnings:
            begun = state.beginning(self.beginnings, lease=self.lease, now=self.now)
            taken = TAKE_OUT, {"ids": sorted(b.id for b in self.beginnings)}
            paid = self.spending.writing()
            state.confirm(run_together(session, [begun, self._taken_slots(), taken, *paid])[0], self.beginnings)
        elif self.spending.tripped:
            run_together(session, self.spending.writing())
        self.result.tripped = sorted(self.spending.tripped)
        if self.result.put_back:
            rows(session, PUT_BACK, ids=sorted(self.result.put_back), lease=self.lease, now=self.now)
        if self.broken:
            park(session, self.books, self.broken, now=self.now)
            self.result.parked = set(self.broken)
        if self.result.closed:
            close_intents(session, self.books, [self._too_late(i) for i in sorted(self.result.closed)], now=self.now)

    def _too_late(self, attempt_id: UUID) -> Closing:
        intent_id = self.books.attempts[attempt_id].intent_id
        return Closing(intent_id, AttemptState.EXPIRED, Reason.WOULD_EXPIRE, "dispatch", self.facts[attempt_id].decision_id)

    def _taken_slots(self) -> Statement:
        """Write the slots that this page took, one update per gate."""
        new = [{"tenant_id": t, "address_hash": h, "slots": slots} for (t, h), slots in sorted(self.slots.items())]
        return TAKE_SLOTS, {**as_page(new), "now": self.now}


class ArtifactMismatch(DaybookError):
    """The text rendered now is not the one that was counted, decided on and hashed at acceptance."""


def _slot_json(slot: Slot, attempt_id: UUID) -> dict[str, str]:
    return {"business_key": slot.business_key, "attempt_id": str(attempt_id), "until": slot.until.isoformat()}
