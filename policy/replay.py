"""Read stored evidence again: the facts it was taken on, what each rule said, and the decision that follows from it.

Evidence is kept for good, so both ways of writing it are read here and nowhere else: today's, which
leaves out what is not there, and the first one, which repeated the version's header, every fact and
the moment of each question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from policy.categories import Basis
from policy.decide import Decision, decide
from policy.document import Document
from policy.facts import Consent, Contacted, Facts, Preference, Suppression, ZoneSource
from policy.findings import Json
from policy.spending import Spent
from policy.words import Category, Channel, NumberType, Reason, Verdict


@dataclass(frozen=True, slots=True)
class Answer:
    """What one rule said, and what it saw beyond the facts.

    `until` is how long it objects, or has none, where it says so; `asked_at` is None where it was
    asked at the decision's own moment.
    """

    rule: str
    verdict: Verdict
    reason: Reason | None
    until: datetime | None
    asked_at: datetime | None
    saw: Mapping[str, Any]


def facts_of(evidence: Mapping[str, Json]) -> Facts:
    """Read the facts back; KeyError or ValueError when this is no evidence of ours."""
    told: Any = evidence["facts"]
    return Facts(
        channel=Channel(told["channel"]),
        category=Category(told["category"]),
        country=told.get("country"),
        zones=tuple(told["zones"]),
        zone_source=ZoneSource(told["zone_source"]),
        accepted_at=datetime.fromisoformat(told["accepted_at"]),
        expires_at=_instant(told, "expires_at"),
        route_available=told.get("route_available", True),
        tzdata_version=told["tzdata_version"],
        phonenumbers_version=told["phonenumbers_version"],
        suppressions=tuple(map(_suppression, told.get("suppressions", ()))),
        not_before=_instant(told, "not_before"),
        cooldown_until=_instant(told, "cooldown_until"),
        cooldown_holder=told.get("cooldown_holder"),
        consents=tuple(map(_consent, told.get("consents", ()))),
        preferences=tuple(map(_preference, told.get("preferences", ()))),
        contacted=tuple(map(_contacted, told.get("contacted", ()))),
        number_type=NumberType(told["number_type"]) if "number_type" in told else None,
        subdivisions=tuple(told.get("subdivisions", ())),
        segment_count=told.get("segment_count"),
        sender_type=told.get("sender_type"),
        basis=Basis(told["basis"]) if "basis" in told else None,
        recipient_version=told.get("recipient_version"),
        confirms=told.get("confirms"),
        spent=_spent(told["spent"]) if "spent" in told else None,
    )


def _spent(told: Mapping[str, str]) -> Spent:
    return Spent(date.fromisoformat(told["day"]), Decimal(told["amount"]), Decimal(told["price"]))


def answers_of(evidence: Mapping[str, Json]) -> list[Answer]:
    """Read what each rule said, in the order they were asked; nothing where evidence holds no rules."""
    rules: Any = evidence.get("rules", ())
    return [_answer(rule) for rule in rules]


def replay(document: Document | None, evidence: Mapping[str, Json], *, now: datetime) -> Decision:
    """Decide again on stored evidence, as of `now`: with its own document and moment the verdict is the one that was stored."""
    return decide(document, facts_of(evidence), now=now)


def same(one: Decision, other: Decision) -> bool:
    """Say whether two decisions tell the same, so that the later need not be kept.

    They do when verdict, reason, evidence and the end of what is allowed are equal. That end can move while
    all that was seen stays: a version that is published later ends the one before. What moves with `now`
    alone, such as when to look again without a policy, is not part of the evidence.
    """
    if (one.verdict, one.reason, one.valid_until) != (other.verdict, other.reason, other.valid_until):
        return False
    return one.evidence == other.evidence or (_is_old(one.evidence) is not _is_old(other.evidence) and _told(one) == _told(other))


def _is_old(evidence: Mapping[str, Json]) -> bool:
    return "asked_at" in evidence


def _told(decision: Decision) -> Sequence[object]:
    """Give what both ways of writing evidence tell."""
    policy: Any = decision.evidence.get("policy") or {}
    said = [(a.rule, a.verdict, a.reason, a.until) for a in answers_of(decision.evidence) if a.verdict is not Verdict.ALLOW]
    not_before = None if decision.reason is Reason.NO_POLICY else decision.not_before
    return policy.get("sha256"), facts_of(decision.evidence), said, not_before, decision.valid_until


def _answer(rule: Any) -> Answer:  # noqa: ANN401 - stored JSON
    if isinstance(rule, str):
        return Answer(rule, Verdict.ALLOW, None, None, None, {})
    saw = rule.get("saw", {})
    said = rule.get("said", {})
    return Answer(
        rule=rule["rule"],
        verdict=Verdict(said.get("verdict", Verdict.ALLOW)),
        reason=Reason(said["reason"]) if said.get("reason") else None,
        until=_instant(said, "not_before") or _instant(said, "until") or _instant(saw, "until"),
        asked_at=_instant(rule, "asked_at"),
        saw=saw,
    )


def _instant(told: Mapping[str, Any], name: str) -> datetime | None:
    value = told.get(name)
    return None if value is None else datetime.fromisoformat(value)


def _category(told: Mapping[str, Any]) -> Category | None:
    return None if told.get("category") is None else Category(told["category"])


def _suppression(told: Mapping[str, Any]) -> Suppression:
    at = datetime.fromisoformat(told["at"])
    return Suppression(told["id"], _category(told), told["source"], at, everything=told.get("everything", False))


def _consent(told: Mapping[str, Any]) -> Consent:
    return Consent(
        id=told["id"],
        kind=told.get("kind"),
        category=_category(told),
        captured_at=datetime.fromisoformat(told["captured_at"]),
        expires_at=_instant(told, "expires_at"),
        wording=told.get("wording"),
        withdrawn=told.get("withdrawn", False),
    )


def _preference(told: Mapping[str, Any]) -> Preference:
    return Preference(told["id"], _category(told), told["wanted"], datetime.fromisoformat(told["at"]))


def _contacted(told: Mapping[str, Any]) -> Contacted:
    return Contacted(datetime.fromisoformat(told["at"]), Category(told["category"]), told["same_subject"])
