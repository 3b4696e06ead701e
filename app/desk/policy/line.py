"""A tenant's versions in time: exactly one at any instant, each until the next one starts or its own end comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.ground.errors import DaybookError
from policy.document import Document
from policy.findings import rfc3339

# Rows are immutable: what closes an open end is the start of the next one, read and never written.
LINE = """
SELECT v.id, t.name AS tenant, v.name, v.version, v.sha256, v.owner, v.reviewer, v.status, v.effective_from, v.effective_until,
       coalesce(v.effective_until, (SELECT min(n.effective_from) FROM policy_version n
                                    WHERE n.tenant_id = v.tenant_id AND n.effective_from > v.effective_from)) AS ends_at,
       v.published_at
FROM policy_version v JOIN tenant t ON t.id = v.tenant_id
WHERE v.tenant_id = %(tenant)s ORDER BY v.effective_from, v.id
"""

TENANTS = "SELECT id FROM tenant ORDER BY name"

# A decision that a worker holds was taken at most a lease ago, without knowing of what was published since.
AHEAD: Final = timedelta(seconds=60)


class PolicyRefused(DaybookError):
    """A document cannot be published as it is; the class says why."""


class PolicyOverlaps(PolicyRefused):
    """Another version is in force at some instant of this one's dates."""


class PolicyGap(PolicyRefused):
    """At some instant between two versions none would be in force."""


class AlreadyPublished(PolicyRefused):
    """The tenant has a version of this name."""


class StartsTooSoon(PolicyRefused):
    """Only a tenant's first version may start at once."""


@dataclass(frozen=True, slots=True)
class Version:
    """One published version as the line shows it; `ends_at` is when the next one starts, or its own end."""

    id: UUID
    tenant: str
    name: str
    version: str
    sha256: str
    owner: str
    reviewer: str | None
    status: str
    effective_from: datetime
    effective_until: datetime | None
    ends_at: datetime | None
    published_at: datetime

    @property
    def label(self) -> str:
        """Name it as the API does."""
        return f"{self.name}@{self.version}"

    def holds(self, at: datetime) -> bool:
        """Say whether it is the one in force."""
        return self.effective_from <= at and (self.ends_at is None or at < self.ends_at)


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a version would stand: after whom, before whom, and since when nothing is in force before it starts."""

    follows: str | None
    precedes: str | None
    ends_at: datetime | None
    lapsed_since: datetime | None


def read_tenants(session: Session) -> list[UUID]:
    """Read whose lines there are, by name."""
    return [row.id for row in rows(session, TENANTS)]


def read_line(session: Session, *, tenant_id: UUID) -> list[Version]:
    """Read a tenant's versions in the order in which they start."""
    return [Version(**row._asdict()) for row in rows(session, LINE, tenant=tenant_id)]


def fit(line: Sequence[Version], document: Document, *, now: datetime) -> Fit:
    """Say where a version would stand, or refuse it: as one published before, as an overlap, or as a gap."""
    label, start, end = document.label, document.effective_from, document.effective_until
    _refuse_known(line, document)
    same = next((each for each in line if each.effective_from == start), None)
    if same is not None:
        raise PolicyOverlaps(f"{same.label} is in force at some instant of {label}'s dates: both start at {rfc3339(start)}")
    before = next((each for each in reversed(line) if each.effective_from < start), None)
    after = next((each for each in line if each.effective_from > start), None)
    written = before.effective_until if before is not None else None
    if before is not None and written is not None and written > start:
        raise PolicyOverlaps(
            f"{before.label} is in force at some instant of {label}'s dates: "
            f"it says of itself that it holds until {rfc3339(written)}, and {label} would start at {rfc3339(start)}"
        )
    if before is not None and written is not None and now + AHEAD <= written < start:
        # A lapse that nobody can prevent any more is no reason to refuse what ends it.
        raise PolicyGap(_gap(written, start, f"let {label} start when {before.label} ends"))
    if after is not None and end is not None and end > after.effective_from:
        raise PolicyOverlaps(
            f"{after.label} is in force at some instant of {label}'s dates: it starts at {rfc3339(after.effective_from)}, "
            f"and {label} says of itself that it holds until {rfc3339(end)}"
        )
    if after is not None and end is not None and end < after.effective_from:
        raise PolicyGap(_gap(end, after.effective_from, f"leave {label}'s effective_until open: {after.label} ends it"))
    return Fit(
        follows=before.label if before is not None else None,
        precedes=after.label if after is not None else None,
        ends_at=end or (after.effective_from if after is not None else None),
        lapsed_since=written if written is not None and written < start else None,
    )


def _refuse_known(line: Sequence[Version], document: Document) -> None:
    for each in line:
        if each.label == document.label:
            same = each.sha256 == document.sha256
            told = "with the same content" if same else "with other content; what was published never changes: name a new version"
            raise AlreadyPublished(f"{document.label} was published at {rfc3339(each.published_at)}, {told}")


def _gap(start: datetime, end: datetime, advice: str) -> str:
    return f"no version would be in force from {rfc3339(start)} to {rfc3339(end)}: {advice}"
