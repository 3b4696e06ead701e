"""Open intents: decide at acceptance, and lay out the rows of intent, decision, attempt, transitions and outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import itemgetter
from typing import Any
from uuid import UUID

from app.ground.db import Statement, insertion
from app.ground.ids import new_id
from app.ground.keys import attempt_key, keyed_hash
from app.ledger.decide import Decided, Wish, decide_wish
from app.ledger.surroundings import Surroundings
from app.ledger.transition import INTENT_STATES
from app.ledger.view import IntentView
from models.base import Base
from models.ledger import Attempt, Decision, Intent, Transition
from models.work import FeedPending, Outbox
from policy.segments import Segments, count
from policy.states import AttemptState, PublicState
from policy.words import LANES, Lane, Reason, Verdict

# What a suppression at acceptance or dispatch closes its attempt as: time that ran out is no
# objection to the person, and is told apart.
TIME_REASONS = frozenset({Reason.EXPIRED, Reason.WOULD_EXPIRE})


@dataclass(frozen=True, slots=True)
class Opening:
    """One event on one channel that gets an intent of its own."""

    event_id: UUID
    recipient_ref: str
    contact_id: UUID
    wish: Wish
    body: str = field(repr=False)
    """The text as rendered at acceptance; counted and hashed, not kept."""

    def counted(self, segments: Segments) -> Wish:
        """Give the wish with the length of its text."""
        return replace(self.wish, segment_count=segments.segments)


@dataclass(slots=True)
class Entries:
    """Rows to be written together, each table's sorted so that overlapping pages cannot deadlock."""

    by_table: dict[type[Base], list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, table: type[Base], **row: object) -> None:
        """Add one row."""
        self.by_table.setdefault(table, []).append(row)

    def statements(self, order: Sequence[tuple[type[Base], str]]) -> list[Statement]:
        """Give one INSERT per table that has rows, in the order given, sorted by the column named."""
        return [
            insertion(table, sorted(self.by_table[table], key=itemgetter(column)))
            for table, column in order
            if table in self.by_table
        ]


ORDER: tuple[tuple[type[Base], str], ...] = (
    (Intent, "business_key"),
    (Decision, "id"),
    (Attempt, "id"),
    (Transition, "id"),
    (FeedPending, "transition_id"),
    (Outbox, "attempt_id"),
)


def closing_state(decided: Decided) -> AttemptState | None:
    """Say how a decision closes its attempt, None when it does not."""
    if decided.decision.verdict is not Verdict.SUPPRESS:
        return None
    return AttemptState.EXPIRED if decided.decision.reason in TIME_REASONS else AttemptState.SUPPRESSED


def open_intent(entries: Entries, opening: Opening, around: Surroundings, *, now: datetime) -> IntentView:
    """Decide an opening and lay out its rows."""
    segments = count(opening.body)
    wish = opening.counted(segments)
    decided = decide_wish(wish, around, now=now)
    intent_id, attempt_id, decision_id = new_id(), new_id(), new_id()
    closing = closing_state(decided)
    *_, last = steps = _steps(decided, closing)
    common = {"tenant_id": wish.tenant_id, "event_id": opening.event_id, "intent_id": intent_id}
    entries.add(
        Intent,
        id=intent_id,
        event_id=opening.event_id,
        tenant_id=wish.tenant_id,
        business_key=wish.business_key,
        channel=wish.channel,
        category=wish.category,
        recipient_ref=opening.recipient_ref,
        contact_id=opening.contact_id,
        gate_hash=wish.gate_hash,
        declared_zone=wish.declared_zone,
        number_type=wish.number_type,
        subdivisions=list(wish.subdivisions),
        expires_at=wish.expires_at,
        accepted_at=wish.accepted_at,
        state=INTENT_STATES[last[0]],
        reason=last[1],
        next_at=last[2],
        transition_count=len(steps),
        holds_key=closing is None,
        close_requested_at=None,
        close_request=None,
        closed_at=None if closing is None else now,
    )
    _add_decision(entries, common, attempt_id, decision_id, decided, now=now)
    _add_attempt(entries, common, attempt_id, decided, opening.body, segments, state=closing or AttemptState.QUEUED, now=now)
    for n, (state, reason, next_at) in enumerate(steps, start=1):
        before = steps[n - 2][0] if n > 1 else None
        _add_transition(
            entries, common, attempt_id, opening.recipient_ref, n, before, state, reason, next_at, decision_id, now=now
        )
    if closing is None:
        entries.add(
            Outbox,
            attempt_id=attempt_id,
            intent_id=intent_id,
            event_id=opening.event_id,
            tenant_id=wish.tenant_id,
            lane=_lane_of(decided, wish),
            route_id=decided.route_id,
            due_at=last[2] or now,
            reason=last[1],
            decision_id=decision_id,
            held_at=None,
            gate_seen_at=decided.gate_seen_at,
            lease=None,
            leased_until=None,
            lost_lease_count=0,
        )
    return IntentView(intent_id, wish.channel, last[0], last[1], last[2])


def _lane_of(decided: Decided, wish: Wish) -> Lane:
    """Give the lane that the version names for the category, else its usual one; a reply is awaited."""
    if wish.confirms is not None:
        return Lane.URGENT
    rules = decided.policy.document.categories.get(wish.category) if decided.policy else None
    return (rules.lane if rules else None) or LANES[wish.category]


Step = tuple[PublicState, str | None, datetime | None]


def _steps(decided: Decided, closing: AttemptState | None) -> list[Step]:
    reason = decided.decision.reason
    if closing is not None:
        return [(PublicState(closing.value), reason, None)]
    queued: Step = (PublicState.QUEUED, None, None)
    if decided.decision.verdict is Verdict.DEFER:
        return [queued, (PublicState.DEFERRED, reason, decided.decision.not_before)]
    return [queued]


def _add_decision(
    entries: Entries, common: Mapping[str, UUID], attempt_id: UUID, decision_id: UUID, decided: Decided, *, now: datetime
) -> None:
    entries.add(Decision, **decision_row(common, attempt_id, decision_id, decided, moment="acceptance", now=now))


def decision_row(
    common: Mapping[str, UUID], attempt_id: UUID, decision_id: UUID, decided: Decided, *, moment: str, now: datetime
) -> dict[str, Any]:
    """Lay a decision out as a row."""
    decision = decided.decision
    return {
        "id": decision_id,
        **common,
        "attempt_id": attempt_id,
        "policy_version_id": decided.policy.id if decided.policy else None,
        "moment": moment,
        "verdict": decision.verdict,
        "reason": decision.reason,
        "not_before": decision.not_before,
        "valid_until": decision.valid_until,
        "evidence": dict(decision.evidence),
        "decided_at": now,
    }


def _add_attempt(
    entries: Entries,
    common: Mapping[str, UUID],
    attempt_id: UUID,
    decided: Decided,
    body: str,
    segments: Segments,
    *,
    state: AttemptState,
    now: datetime,
) -> None:
    digest = keyed_hash("body", body.encode())
    row = attempt_row(common, attempt_id, ordinal=1, route_id=decided.route_id, now=now)
    row |= {
        "state": state,
        "body_hash": digest.digest,
        "hash_key_id": digest.key_id,
        "encoding": segments.encoding,
        "segment_count": segments.segments,
        "price": str(decided.price.amount) if decided.price else None,
        "currency": decided.price.currency if decided.price else None,
        "ended_at": None if state is AttemptState.QUEUED else now,
    }
    entries.add(Attempt, **row)


def attempt_row(
    common: Mapping[str, UUID], attempt_id: UUID, *, ordinal: int, route_id: UUID | None, now: datetime
) -> dict[str, Any]:
    """Lay a queued attempt out as a row; the caller adds what the body was rendered to."""
    return {
        "id": attempt_id,
        **common,
        "ordinal": ordinal,
        "route_id": route_id,
        "attempt_key": attempt_key(attempt_id),
        "state": AttemptState.QUEUED,
        "error_class": None,
        "error_code": None,
        "body_hash": None,
        "hash_key_id": None,
        "encoding": None,
        "segment_count": None,
        "price": None,
        "currency": None,
        "allowed_by": None,
        "decision_id": None,
        "lease": None,
        "prepared_at": None,
        "answered_at": None,
        "ended_at": None,
        "taken": False,
        "next_check_at": None,
        "horizon_at": None,
        "check_count": 0,
        "not_found_count": 0,
        "unheard_at": None,
        "created_at": now,
    }


def _add_transition(
    entries: Entries,
    common: Mapping[str, UUID],
    attempt_id: UUID,
    recipient_ref: str,
    n: int,
    before: PublicState | None,
    state: PublicState,
    reason: str | None,
    next_at: datetime | None,
    decision_id: UUID,
    *,
    now: datetime,
) -> None:
    transition_id = new_id()
    entries.add(
        Transition,
        id=transition_id,
        **common,
        attempt_id=attempt_id,
        n=n,
        from_state=before,
        state=state,
        reason=reason,
        next_at=next_at,
        cause="acceptance",
        cause_id=decision_id,
        at=now,
    )
    entries.add(
        FeedPending,
        transition_id=transition_id,
        intent_id=common["intent_id"],
        n=n,
        tenant_id=common["tenant_id"],
        recipient_ref=recipient_ref,
    )
