"""The person has agreed to this, in a way that is good enough here, and that still holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from policy.applicable import in_force
from policy.document import Document
from policy.facts import Consent, Facts
from policy.findings import Allowed, Finding, Refused
from policy.words import Reason


def ask(document: Document, facts: Facts, now: datetime) -> Finding | None:
    """Refuse without a living consent of an accepted kind, for each rule that names kinds; until the first runs out.

    A country's rules take the place of the category's own kinds: they say what counts there.
    """
    wanted = [rule.consent for rule in in_force(document, facts, now) if rule.consent]
    wanted = wanted or [kinds for kinds in (document.categories[facts.category].consent,) if kinds]
    if not wanted:
        return None
    acts = [act for act in facts.consents if act.category in {None, facts.category}]
    living = [act for act in acts if _stands(act, acts) and (act.expires_at is None or now < act.expires_at)]
    chosen = []
    for kinds in wanted:
        best = max((consent for consent in living if consent.kind in kinds), key=_lasts, default=None)
        if best is None:
            return Refused(Reason.NO_CONSENT, {"accepted": sorted(kinds), "standing": sorted(c.id for c in living)})
        chosen.append(best)
    until = min((consent.expires_at for consent in chosen if consent.expires_at is not None), default=None)
    return Allowed(until, {"consent": sorted({consent.id for consent in chosen})})


def _stands(act: Consent, acts: Sequence[Consent]) -> bool:
    """Say whether an act is a consent that no withdrawal of its kind, as late or later, has undone."""
    return not act.withdrawn and not any(
        other.withdrawn and other.kind in {None, act.kind} and other.captured_at >= act.captured_at for other in acts
    )


def _lasts(consent: Consent) -> tuple[bool, float, str]:
    """Order by how long it holds; the id makes the choice the same each time."""
    ends = consent.expires_at
    return ends is None, 0.0 if ends is None else ends.timestamp(), consent.id
