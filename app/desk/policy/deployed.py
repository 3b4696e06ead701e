"""Look at the rules of a deployed Daybook: who has none, whose are about to start or lapse, what no longer reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.policy.line import Version, read_line
from app.ground.db import rows
from app.people.contacts import PHONENUMBERS_VERSION
from policy.document import InvalidDocument, Status, parse
from policy.findings import rfc3339
from policy.zones import tzdata_version

TENANTS = "SELECT id, name FROM tenant ORDER BY name"
DOCUMENTS = "SELECT id, document FROM policy_version WHERE tenant_id = %(tenant)s"
# The newest decision of all: what was installed when somebody last decided.
LAST_EVIDENCE = """
SELECT evidence -> 'facts' ->> 'tzdata_version' AS tzdata, evidence -> 'facts' ->> 'phonenumbers_version' AS phonenumbers
FROM decision ORDER BY id DESC LIMIT 1
"""

SOON: Final = timedelta(days=14)


class Grade(StrEnum):
    """How grave it is."""

    ERROR = "error"
    LAPSED = "lapsed"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing that whoever releases, or owns rules, should know."""

    grade: Grade
    tenant: str | None
    policy: str | None
    owner: str | None
    words: str


def look_at_deployed(session: Session, *, now: datetime) -> list[Remark]:
    """Look at every tenant's versions and at the libraries that decisions stand on; empty when there is nothing to say."""
    found = [remark for tenant in rows(session, TENANTS) for remark in _of_tenant(session, tenant.id, tenant.name, now)]
    return [*found, *_of_libraries(session)]


def _of_tenant(session: Session, tenant_id: UUID, tenant: str, now: datetime) -> Iterator[Remark]:
    line = read_line(session, tenant_id=tenant_id)
    documents = {row.id: row.document for row in rows(session, DOCUMENTS, tenant=tenant_id)}
    in_force = next((version for version in line if version.holds(now)), None)
    if in_force is None:
        yield _none(line, tenant, now)
    elif in_force.status == Status.SAMPLE:
        yield _remark(Grade.NOTE, in_force, "in force, and a sample: nobody has answered for it")
    for version in line:
        try:
            document = parse(documents[version.id])
        except InvalidDocument as error:
            yield _remark(Grade.ERROR, version, f"stored, and this release cannot read it: {'; '.join(map(str, error.problems))}")
        else:
            if document.sha256 != version.sha256:
                yield _remark(Grade.ERROR, version, "stored, and no longer the document that its hash stands for")
        yield from _of_dates(version, line, now)


def _none(line: Sequence[Version], tenant: str, now: datetime) -> Remark:
    coming = next((version for version in line if version.effective_from > now), None)
    ended = max((version.ends_at for version in line if version.ends_at is not None and version.ends_at <= now), default=None)
    since = f"since {rfc3339(ended)}" if ended is not None else "and never was"
    then = f"; {coming.label} starts at {rfc3339(coming.effective_from)}" if coming is not None else ""
    last = coming or (line[-1] if line else None)
    words = f"NO VERSION IS IN FORCE {since}{then}: everything of this tenant waits"
    return Remark(Grade.LAPSED, tenant, last.label if last else None, last.owner if last else None, words)


def _of_dates(version: Version, line: Sequence[Version], now: datetime) -> Iterator[Remark]:
    if now < version.effective_from <= now + SOON:
        yield _remark(Grade.WARNING, version, f"starts at {rfc3339(version.effective_from)}")
    end = version.ends_at
    if end is not None and now < end <= now + SOON and version.effective_from <= end:
        following = next((other for other in line if other.effective_from == end), None)
        then = (
            f"{following.label} follows" if following is not None else "and NOTHING FOLLOWS: publish a version that starts then"
        )
        yield _remark(Grade.WARNING, version, f"lapses at {rfc3339(end)}, {then}")


def _of_libraries(session: Session) -> Iterator[Remark]:
    last = rows(session, LAST_EVIDENCE)
    if not last:
        return
    for name, then, here in (
        ("tzdata", last[0].tzdata, tzdata_version()),
        ("phonenumbers", last[0].phonenumbers, PHONENUMBERS_VERSION),
    ):
        if then != here:
            words = f"{name} is {here}, and decisions were last taken under {then}: hours and countries may have moved"
            yield Remark(Grade.NOTE, None, None, None, words)


def _remark(grade: Grade, version: Version, words: str) -> Remark:
    return Remark(grade, version.tenant, version.label, version.owner, words)
