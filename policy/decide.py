"""Document, facts and now in; one decision with its evidence out. The same in, the same out.

The rules that refuse are asked first, so that a suppression is stronger than any deferral; the first
refusal ends the asking. The rules that wait are then asked in turn, each at the instant the others
wait for, until none has an objection: that instant is the next eligible one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from policy.document import Document
from policy.facts import Facts
from policy.findings import Allowed, Finding, Json, Refused, Waiting, rfc3339, words_of
from policy.rules import (
    caps,
    consent,
    cooldown,
    country,
    expiry,
    in_force,
    not_before,
    number,
    preference,
    price,
    route,
    sender,
    spend,
    suppression,
    window,
)
from policy.words import Reason, Verdict

# None: neither the document nor the facts say anything that this rule could look at.
Ask: TypeAlias = Callable[[Document, Facts, datetime], Finding | None]

# A new rule is a module under `rules` and one line here. A rule under WAITING names an instant later
# than the one it was asked about, and no instant before it would have done.
REFUSING: Final[Mapping[str, Ask]] = {
    "country": country.ask,
    "number": number.ask,
    "suppression": suppression.ask,
    "preference": preference.ask,
    "consent": consent.ask,
    "route": route.ask,
    "sender": sender.ask,
    "price": price.ask,
    "expiry": expiry.ask,
}
WAITING: Final[Mapping[str, Ask]] = {
    "cooldown": cooldown.ask,
    "caps": caps.ask,
    "spend": spend.ask,
    "not_before": not_before.ask,
    "window": window.ask,
}

# What a reply to the person's own text is not asked: they are awake, and wait for it.
NOT_OF_REPLIES: Final = frozenset({"cooldown", "caps", "window"})

# Today's rules agree in two rounds. Rules that kept pushing each other on would have no common instant.
ROUNDS: Final = 50


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy version said about an intent at a moment, and the evidence it saw, as plain JSON values.

    `not_before` comes with a deferral, `valid_until` with an allowance, `reason` with all but an allowance.
    """

    verdict: Verdict
    reason: Reason | None
    not_before: datetime | None
    valid_until: datetime | None
    evidence: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class _Asked:
    """One question to one rule, and the answer."""

    rule: str
    at: datetime
    said: Finding


def decide(document: Document | None, facts: Facts, *, now: datetime) -> Decision:
    """Say allow, defer or suppress, and why.

    Without a version that speaks, this defers: it never allows, and drops only what is past its own end.
    """
    asked = [_Asked("in_force", now, in_force.ask(document, facts, now))]
    if document is not None and isinstance(asked[0].said, Allowed):
        asked += _ask_refusing(document, facts, now)
        if not isinstance(asked[-1].said, Refused):
            asked += _ask_waiting(document, facts, now)
    elif facts.expires_at is not None and facts.expires_at <= now:
        asked.append(_Asked("expiry", now, Refused(Reason.EXPIRED, {"ends_at": rfc3339(facts.expires_at)})))
    return _conclude(asked, now=now, evidence=_evidence(document, facts, asked, now))


def _ask_refusing(document: Document, facts: Facts, now: datetime) -> list[_Asked]:
    asked = []
    for rule, ask in REFUSING.items():
        said = ask(document, facts, now)
        if said is not None:
            asked.append(_Asked(rule, now, said))
        if isinstance(said, Refused):
            break
    return asked


def _ask_waiting(document: Document, facts: Facts, now: datetime) -> list[_Asked]:
    """Move from instant to instant until no rule waits, then see whether that is still in time."""
    asked: list[_Asked] = []
    asking = {rule: ask for rule, ask in WAITING.items() if facts.confirms is None or rule not in NOT_OF_REPLIES}
    at = now
    for turn in range(ROUNDS):
        before = at
        for rule, ask in asking.items():
            said = ask(document, facts, at)
            if said is None:
                continue
            if turn == 0 or not isinstance(said, Allowed):  # later consent adds nothing to the evidence
                asked.append(_Asked(rule, at, said))
            match said:
                case Waiting(not_before=later):
                    at = later
                case Refused():
                    return asked
                case Allowed():
                    pass
        if at == before:
            break
    else:
        return [*asked, _Asked("all", at, Refused(Reason.NO_COMMON_WINDOW, {"rounds": ROUNDS}))]
    return [*asked, _Asked("expiry", at, expiry.ask(document, facts, at))] if at > now else asked


def _conclude(asked: Sequence[_Asked], *, now: datetime, evidence: Mapping[str, Json]) -> Decision:
    """Read the decision off the answers: a refusal, else the last wait, else the earliest end of what is allowed."""
    for each in asked:
        if isinstance(each.said, Refused):
            in_time = each.said.reason is not Reason.EXPIRED or each.at <= now
            reason = each.said.reason if in_time else Reason.WOULD_EXPIRE
            return Decision(Verdict.SUPPRESS, reason, None, None, evidence)
    waits = [each.said for each in asked if isinstance(each.said, Waiting)]
    if waits:
        # The last to move the instant is the one that explains it: a cooldown that ends at night waits
        # for the morning because of the hours.
        return Decision(Verdict.DEFER, waits[-1].reason, waits[-1].not_before, None, evidence)
    ends = [each.said.until for each in asked if isinstance(each.said, Allowed) and each.said.until is not None]
    return Decision(Verdict.ALLOW, None, None, min(ends, default=None), evidence)


def _evidence(document: Document | None, facts: Facts, asked: Sequence[_Asked], now: datetime) -> dict[str, Json]:
    """Write down the version, the facts, and each rule that was asked, in order; `policy.replay` reads it again.

    Nothing here moves with `now` alone: two decisions that tell the same have equal evidence.
    """
    told: dict[str, Json] = {"facts": facts.as_evidence(), "rules": [_entry(each, now) for each in asked]}
    if document is not None:
        told["policy"] = {"name": document.name, "version": document.version, "sha256": document.sha256}
    return told


def _entry(each: _Asked, now: datetime) -> Json:
    """Write down one answer: the rule's name alone where it had no objection and saw nothing that is not among the facts."""
    entry: dict[str, Json] = {"rule": each.rule}
    if each.at != now:
        entry["asked_at"] = rfc3339(each.at)
    if each.said.saw:
        entry["saw"] = each.said.saw
    if not isinstance(each.said, Allowed):
        entry["said"] = words_of(each.said)
    return entry if len(entry) > 1 else each.rule
