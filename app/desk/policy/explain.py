"""Explain why somebody was, or was not, contacted: the versions, each rule asked, what it saw and what it said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.policy.sentences import FOLLOWED, LOOKS_AT, question_of, sentence_of, source_of_zone
from app.ground.db import rows, run_together
from app.people.provenance import Act, acts_by_id, covering
from policy.findings import rfc3339
from policy.replay import answers_of
from policy.words import RULE_OF, AllowedBy, Verdict
from policy.zones import find_zone

INTENT_OF = """
SELECT id AS intent_id, NULL::uuid AS attempt_id FROM intent WHERE id = %(id)s
UNION ALL SELECT intent_id, id FROM attempt WHERE id = %(id)s
"""

INTENT = """
SELECT i.id, i.event_id, t.name AS tenant, i.channel, i.category, i.recipient_ref, i.state, i.reason, i.next_at, i.accepted_at,
       e.type, e.subject, e.template_name || '@' || e.template_version AS template
FROM intent i JOIN event e ON e.id = i.event_id LEFT JOIN tenant t ON t.id = i.tenant_id WHERE i.id = %(intent)s
"""

DECISIONS = """
SELECT d.id, d.attempt_id, d.moment, d.verdict, d.reason, d.not_before, d.valid_until, d.decided_at, d.evidence,
       p.name || '@' || p.version AS policy, p.sha256, p.owner, p.reviewer, p.status, p.effective_from,
       coalesce(p.effective_until, (SELECT min(n.effective_from) FROM policy_version n
                                    WHERE n.tenant_id = p.tenant_id AND n.effective_from > p.effective_from)) AS effective_until
FROM decision d LEFT JOIN policy_version p ON p.id = d.policy_version_id
WHERE d.intent_id = %(intent)s ORDER BY d.decided_at, d.id
"""

ATTEMPTS = """
SELECT a.id, a.ordinal, a.state, a.decision_id, a.prepared_at, a.error_class, a.allowed_by, o.held_at
FROM attempt a LEFT JOIN outbox o ON o.attempt_id = a.id WHERE a.intent_id = %(intent)s ORDER BY a.ordinal
"""

ZONES_TOLD: Final = 3
"""More clocks than this help nobody; then UTC stands alone."""

VERDICTS: Final[Mapping[str, str]] = {
    Verdict.ALLOW: "Yes, we may contact you.",
    Verdict.DEFER: "Not yet.",
    Verdict.SUPPRESS: "No, we may not contact you.",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """One rule: its question, what it saw, and what it said in a word and in a sentence."""

    rule: str
    question: str
    asked_at: datetime
    saw: Mapping[str, Any]
    verdict: str
    reason: str | None
    until: datetime | None
    sentence: str
    suppressions: Sequence[Act]
    """What forbade it: when, how and by which message it was said."""


@dataclass(frozen=True, slots=True)
class Explained:
    """One decision: when, under which version, and every rule that was asked."""

    decision_id: UUID
    moment: str
    decided_at: datetime
    verdict: str
    reason: str | None
    until: datetime | None
    sentence: str
    policy: Mapping[str, Any] | None
    zones: Sequence[str]
    zone_source: str
    rules: Sequence[Asked]
    admitted: Sequence[int]
    """The ordinals of the attempts that left us under this decision."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole chain of one intent."""

    intent: Any
    attempt_id: UUID | None
    attempts: Sequence[Any]
    decisions: Sequence[Explained]

    def why(self, attempt: Any) -> str | None:  # noqa: ANN401 - a row of ATTEMPTS
        """Say why an attempt followed the one before it, and by which version; None for one that followed none."""
        if attempt.allowed_by is None:
            return None
        labels = (d.policy["policy"] for d in self.decisions if d.policy and attempt.ordinal - 1 in d.admitted)
        by = RULE_OF[attempt.allowed_by]
        rule = by if attempt.allowed_by == AllowedBy.PERSON else f"{next(labels, 'no version')}: {by}"
        return f"{FOLLOWED[attempt.allowed_by]} ({rule})"

    @property
    def outcome(self) -> str:
        """Say in a sentence how it stands."""
        return sentence_of(self.intent.reason) or _STATES[self.intent.state]


_STATES: Final[Mapping[str, str]] = {
    "queued": "It is due, and has not left us yet.",
    "deferred": "It waits.",
    "in_flight": "The carrier is at work on it.",
    "delivered": "The carrier says that it reached your phone.",
    "failed": "The carrier could not bring it to you.",
    "unknown": "We cannot tell yet whether the carrier took it.",
    "suppressed": "We did not contact you.",
    "expired": "It came too late, and we did not contact you.",
    "cancelled": "It was cancelled.",
}


def explain(session: Session, *, wanted: UUID) -> Explanation | None:
    """Explain an intent, by its id or an attempt's; None when nothing has this id."""
    found = rows(session, INTENT_OF, id=wanted)
    if not found:
        return None
    of_intent = {"intent": found[0].intent_id}
    intent, decisions, attempts = run_together(session, [(INTENT, of_intent), (DECISIONS, of_intent), (ATTEMPTS, of_intent)])
    forbidden = acts_by_id(session, [each for row in decisions for each in covering(row.evidence)])
    acts = {act.id: act for act in forbidden}
    return Explanation(intent[0], found[0].attempt_id, attempts, [_explained(row, attempts, acts) for row in decisions])


def _explained(row: Any, attempts: Sequence[Any], acts: Mapping[UUID, Act]) -> Explained:  # noqa: ANN401 - a row
    facts = row.evidence.get("facts", {})
    return Explained(
        decision_id=row.id,
        moment=row.moment,
        decided_at=row.decided_at,
        verdict=row.verdict,
        reason=row.reason,
        until=row.not_before or row.valid_until,
        sentence=" ".join(part for part in (VERDICTS[row.verdict], sentence_of(row.reason)) if part),
        policy=_policy(row),
        zones=facts.get("zones", ()),
        zone_source=source_of_zone(facts),
        rules=list(_asked(row, acts)),
        admitted=[a.ordinal for a in attempts if a.decision_id == row.id and a.prepared_at is not None],
    )


def _policy(row: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a row
    names = ("policy", "sha256", "owner", "reviewer", "status", "effective_from", "effective_until")
    return None if row.policy is None else {name: getattr(row, name) for name in names}


def _asked(row: Any, acts: Mapping[UUID, Act]) -> Iterator[Asked]:  # noqa: ANN401 - a row
    facts = row.evidence.get("facts", {})
    forbidden = [acts[each] for each in covering(row.evidence) if each in acts]
    for answer in answers_of(row.evidence):
        seen = {name: facts[name] for name in LOOKS_AT.get(answer.rule, ()) if name in facts}
        yield Asked(
            rule=answer.rule,
            question=question_of(answer.rule),
            asked_at=answer.asked_at or row.decided_at,
            saw=seen | dict(answer.saw),
            verdict=answer.verdict,
            reason=answer.reason,
            until=answer.until,
            sentence=sentence_of(answer.reason) or "Yes.",
            suppressions=forbidden if answer.rule == "suppression" else [],
        )


def clocks_of(at: datetime, zones: Sequence[str]) -> list[str]:
    """Write an instant on each of a person's clocks that is known, if there are few; and always in UTC."""
    known = [zone for zone in map(find_zone, zones[:ZONES_TOLD]) if zone is not None] if len(zones) <= ZONES_TOLD else []
    local = [f"{at.astimezone(zone):%a %Y-%m-%d %H:%M:%S} in {zone.key}" for zone in known]
    return [*local, rfc3339(at.replace(microsecond=0)).replace("T", " ").replace("Z", " UTC")]
