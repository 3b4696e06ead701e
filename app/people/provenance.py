"""Provenance: when, how and by which message somebody is not to be contacted, what lifted that, and what stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import rows
from app.people.contacts import masked
from app.people.vault import open_vault_key
from policy.replay import answers_of

# Its cause is an inbound text, an observation of an attempt or an operator's action. Each is looked for by its id, and
# one of them has it. A lift names no row twice, and no two name the same one: they are written under the gate.
ACTS: Final = """
SELECT s.id, s.address_hash, s.act, s.channel, s.category, s.everything, s.source, s.cause_id,
       coalesce(s.told_at, s.at) AS at, s.at AS recorded_at, coalesce(s.reason, nullif(d.reason, '')) AS reason,
       d.id AS action_id, d.actor, o.id AS observation_id, o.attempt_id, o.error_code, t.id AS inbound_id, s.lifts,
       l.id AS lifted_by, l.at AS lifted_at, s.act = 'suppress' AND l.id IS NULL AS stands
FROM suppression s
LEFT JOIN suppression l ON l.tenant_id = s.tenant_id AND l.address_hash = s.address_hash AND l.act = 'lift'
                       AND s.id = ANY(l.lifts)
LEFT JOIN operator_action d ON d.id = s.cause_id
LEFT JOIN observation o ON o.id = s.cause_id
LEFT JOIN inbound t ON t.id = s.cause_id
"""

OF_ADDRESSES: Final = f"""
{ACTS} WHERE s.tenant_id = %(tenant)s AND s.address_hash = ANY(%(hashes)s::bytea[])
   AND (%(after)s::uuid IS NULL OR s.id < %(after)s::uuid) AND (NOT %(standing)s OR (s.act = 'suppress' AND l.id IS NULL))
ORDER BY s.id DESC LIMIT %(limit)s
"""

BY_ID: Final = f"{ACTS} WHERE s.id = ANY(%(ids)s::uuid[]) ORDER BY s.id"

# Every address that was ever told of this person, the newest last.
KNOWN: Final = """
SELECT c.address_hash, c.sealed_address, k.id AS key_id, k.wrapped_key
FROM contact c JOIN person_key k ON k.id = c.person_key_id
WHERE c.tenant_id = %(tenant)s AND c.recipient_ref = %(ref)s AND k.wrapped_key IS NOT NULL ORDER BY c.id
"""

HEARD: Final = "daybook"


@dataclass(frozen=True, slots=True)
class Cause:
    """What an act came from."""

    kind: str
    """inbound: a text that came in; report: what a carrier said of an attempt; action: what somebody did."""
    id: UUID
    attempt_id: UUID | None
    """Of a report: what it was about."""
    error_code: str | None
    """Of a report: the carrier's own code."""


@dataclass(frozen=True, slots=True)
class Act:
    """One suppression or lift, as it is told."""

    id: UUID
    act: str
    channel: str
    address: str | None
    """Masked; None where the reader named it, or where it can be read no more."""
    category: str | None
    everything: bool
    source: str
    at: datetime
    """When it was said."""
    recorded_at: datetime
    """Since when it counts."""
    recorded_by: str
    """Who told it, or daybook where it was heard."""
    reason: str | None
    cause: Cause | None
    stands: bool
    lifted_by: UUID | None
    lifted_at: datetime | None
    lifts: tuple[UUID, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Which of the acts are wanted, the newest first."""

    limit: int
    after: UUID | None = None
    """The id of the last one of the page before."""
    standing: bool = False
    """Only the suppressions that stand."""


def acts_of_person(session: Session, page: Page, *, tenant_id: UUID, ref: str) -> list[Act]:
    """List what was said of every known address of a person, the newest first."""
    known = rows(session, KNOWN, tenant=tenant_id, ref=ref)
    opened = {bytes(row.address_hash): open_vault_key(row.key_id, row.wrapped_key).open(row.sealed_address) for row in known}
    return _acts(session, page, tenant_id, {digest: masked(address) for digest, address in opened.items()})


def acts_of_address(session: Session, page: Page, *, tenant_id: UUID, digest: bytes) -> list[Act]:
    """List what was said of one address, the newest first."""
    return _acts(session, page, tenant_id, {digest: None})


def acts_by_id(session: Session, ids: Iterable[UUID]) -> list[Act]:
    """Give these acts, whoever's they are, without their addresses."""
    wanted = sorted(set(ids))
    return [_act(row, None) for row in rows(session, BY_ID, ids=wanted)] if wanted else []


def covering(evidence: Mapping[str, Any]) -> list[UUID]:
    """Name the suppressions that forbade it, as the evidence of a decision has them."""
    told = [answer.saw.get("covering", ()) for answer in answers_of(evidence) if answer.rule == "suppression"]
    return [UUID(each) for ids in told for each in ids]


def _acts(session: Session, page: Page, tenant_id: UUID, shown: Mapping[bytes, str | None]) -> list[Act]:
    hashes = sorted(shown)
    found = rows(
        session,
        OF_ADDRESSES,
        tenant=tenant_id,
        hashes=hashes,
        after=page.after,
        standing=page.standing,
        limit=page.limit,
    )
    return [_act(row, shown[bytes(row.address_hash)]) for row in found]


def _act(row: Any, address: str | None) -> Act:  # noqa: ANN401 - a row of ACTS
    return Act(
        id=row.id,
        act=row.act,
        channel=row.channel,
        address=address,
        category=row.category,
        everything=row.everything,
        source=row.source,
        at=row.at,
        recorded_at=row.recorded_at,
        recorded_by=row.actor or HEARD,
        reason=row.reason,
        cause=_cause(row),
        stands=row.stands,
        lifted_by=row.lifted_by,
        lifted_at=row.lifted_at,
        lifts=tuple(row.lifts or ()),
    )


def _cause(row: Any) -> Cause | None:  # noqa: ANN401 - a row of ACTS
    kinds = (("action", row.action_id), ("report", row.observation_id), ("inbound", row.inbound_id))
    return next((Cause(kind, found, row.attempt_id, row.error_code) for kind, found in kinds if found is not None), None)
