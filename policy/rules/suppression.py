"""The person has not asked to be left alone, and nobody has found that they must be."""

from __future__ import annotations

from datetime import datetime

from policy.applicable import opt_out_scope
from policy.document import Document, OptOutScope
from policy.facts import Facts, Suppression
from policy.findings import Allowed, Finding, Refused
from policy.words import Category, Reason, SuppressedBy


def ask(document: Document, facts: Facts, now: datetime) -> Finding:
    """Refuse when a suppression covers the category, as far as the policy lets an opt-out reach.

    The one reply that tells the person that they opted out is exempt, from that suppression and no other.
    """
    if not facts.suppressions:
        return Allowed()
    scope = opt_out_scope(document, facts, now)
    covering = sorted(row.id for row in facts.suppressions if _covers(row, facts.category, scope))
    others = [row_id for row_id in covering if row_id != facts.confirms]
    if others:
        return Refused(Reason.OPTED_OUT, {"covering": others, "scope": scope.value})
    return Allowed(saw={"exempt": covering}) if covering else Allowed()


def _covers(row: Suppression, category: Category, scope: OptOutScope) -> bool:
    if row.everything or scope is OptOutScope.ALL:
        return True
    # The policy chooses how far reaches what a person wrote to a number of ours. Anything else without a category (a
    # carrier's block, an operator's or an application's order) covers everything, whatever it says.
    if row.category is None:
        return scope is OptOutScope.PROGRAM or row.source != SuppressedBy.KEYWORD
    return row.category == category
