"""Replay what decisions saw under two policy versions, and say what would change for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows, transact
from app.ground.errors import DaybookError
from app.ledger.audit.check import lowest_id
from policy.decide import Decision, decide
from policy.document import Document, parse
from policy.facts import Facts
from policy.replay import facts_of
from policy.words import Verdict

# The newest first, a page in each transaction: a long look holds no snapshot, and what it leaves out is the oldest.
PAGE = """
SELECT d.id, d.intent_id, d.event_id, d.moment, d.evidence, d.decided_at, i.recipient_ref
FROM decision d JOIN intent i ON i.id = d.intent_id
WHERE d.tenant_id = %(tenant)s AND d.id >= %(from_id)s AND d.id < %(before)s
ORDER BY d.id DESC LIMIT %(count)s
"""
PAGE_COUNT: Final = 500
LAST_ID: Final = UUID(int=2**128 - 1)

STORED = "SELECT document FROM policy_version WHERE tenant_id = %(tenant)s AND name || '@' || version = %(label)s"


class NoSuchVersion(DaybookError):
    """The tenant has published no version of this name."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one version says, without its evidence."""

    verdict: str
    reason: str | None
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class Change:
    """One intent about which the two versions differ, at the first decision where they differ most."""

    intent_id: UUID
    event_id: UUID
    recipient_ref: str
    category: str
    country: str | None
    moment: str
    decided_at: datetime
    before: Said
    after: Said


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changes: `newly` would be contacted under the second version alone, `no_longer` under the first alone."""

    decision_count: int
    intent_count: int
    unreadable_count: int
    is_complete: bool
    """False: the limit was reached, and older decisions were not looked at."""
    changes: Sequence[Change]
    newly: Sequence[Change]
    no_longer: Sequence[Change]

    def counts(self) -> list[dict[str, Any]]:
        """Count the changes by what was said before and after, category and country, the most frequent first."""
        kinds = Counter(
            (c.before.verdict, c.before.reason, c.after.verdict, c.after.reason, c.category, c.country) for c in self.changes
        )
        names = ("before", "reason_before", "after", "reason_after", "category", "country")
        return [dict(zip(names, kind, strict=True)) | {"intents": n} for kind, n in kinds.most_common()]


def find_document(session: Session, *, tenant_id: UUID, label: str) -> Document:
    """Find a published version by its label, `name@version`."""
    found = rows(session, STORED, tenant=tenant_id, label=label)
    if not found:
        raise NoSuchVersion(f"{label!r} is neither a file nor a version that this tenant has published")
    return parse(found[0].document)


def compare(one: Document, other: Document, *, tenant_id: UUID, since: datetime | None, limit: int) -> Comparison:
    """Replay a tenant's decisions, each at its own instant and with the facts it saw, under both versions.

    Dates are passed over: both versions are asked as if they had always been in force. A fact that another
    version would have made otherwise, such as how long an earlier message holds a cooldown, is as it was.
    """
    first, second = _undated(one), _undated(other)
    fates: dict[UUID, _Fate] = {}
    seen = unreadable = 0
    for row in _decisions(tenant_id, since, limit):
        seen += 1
        try:
            facts = facts_of(row.evidence)
        except (KeyError, ValueError, TypeError):
            unreadable += 1
            continue
        before, after = (decide(document, facts, now=row.decided_at) for document in (first, second))
        fates.setdefault(row.intent_id, _Fate()).take(row, facts, _said(before), _said(after))
    changed = [fate for fate in fates.values() if fate.change is not None]
    return Comparison(
        decision_count=seen,
        intent_count=len(fates),
        unreadable_count=unreadable,
        is_complete=seen < limit,
        changes=_in_order(fate.change for fate in changed),
        newly=_in_order(fate.change for fate in changed if fate.allowed_after and not fate.allowed_before),
        no_longer=_in_order(fate.change for fate in changed if fate.allowed_before and not fate.allowed_after),
    )


@dataclass(slots=True)
class _Fate:
    """One intent under both versions, its decisions taken the newest first."""

    allowed_before: bool = False
    allowed_after: bool = False
    change: Change | None = None

    def take(self, row: Any, facts: Facts, before: Said, after: Said) -> None:  # noqa: ANN401 - a row
        """Take one decision into account."""
        self.allowed_before |= before.verdict == Verdict.ALLOW
        self.allowed_after |= after.verdict == Verdict.ALLOW
        if before == after:
            return
        if (
            self.change is not None
            and before.verdict == after.verdict
            and self.change.before.verdict != self.change.after.verdict
        ):
            return  # another hour is less of a change than another verdict
        self.change = Change(
            row.intent_id,
            row.event_id,
            row.recipient_ref,
            facts.category,
            facts.country,
            row.moment,
            row.decided_at,
            before,
            after,
        )


def _decisions(tenant_id: UUID, since: datetime | None, limit: int) -> Iterator[Any]:
    page = _Page(tenant_id, UUID(int=0) if since is None else lowest_id(since))
    left = limit
    while left > 0:
        page.count = min(left, PAGE_COUNT)
        found = transact(lambda tx: page.read(tx.session))
        yield from found
        if len(found) < page.count:
            return
        left -= len(found)
        page.before = found[-1].id


@dataclass(slots=True)
class _Page:
    """Where the reading is."""

    tenant_id: UUID
    from_id: UUID
    before: UUID = LAST_ID
    count: int = PAGE_COUNT

    def read(self, session: Session) -> list[Any]:
        """Read this page."""
        return rows(session, PAGE, tenant=self.tenant_id, from_id=self.from_id, before=self.before, count=self.count)


def _undated(document: Document) -> Document:
    return replace(document, effective_from=datetime.min.replace(tzinfo=UTC), effective_until=None)


def _said(decision: Decision) -> Said:
    return Said(decision.verdict, decision.reason, decision.not_before)


def _in_order(changes: Iterable[Change | None]) -> list[Change]:
    return sorted((c for c in changes if c is not None), key=lambda c: (c.decided_at, c.intent_id))
