"""Order that somebody is not contacted, and lift such orders by name: each is an operator_action with its reason."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.action import record_action
from app.ground.db import rows
from app.ground.errors import DaybookError
from app.ground.ids import new_id
from app.people.persons import NotKept
from app.people.suppress import lift
from app.people.suppressions import NewSuppression, Told, record_suppressions
from policy.words import SuppressedBy

# In the order in which their gates are locked.
NAMED: Final = """
SELECT id, address_hash, channel FROM suppression
WHERE tenant_id = %(tenant)s AND id = ANY(%(ids)s::uuid[]) AND act = 'suppress' ORDER BY address_hash, channel
"""


class NoSuchSuppression(DaybookError):
    """The tenant has no suppression of this id."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a lift took back, and what had been taken back before it."""

    lifted: tuple[UUID, ...]
    before: tuple[UUID, ...]


def order_suppression(session: Session, new: NewSuppression, *, tenant_id: UUID, actor: str, now: datetime) -> Told | NotKept:
    """Suppress a person or a number; what stands already from the same source is not ordered again."""
    action_id, reason = new_id(), new.reason or ""
    unsaid = replace(new, reason=None)  # the action says why
    (told,) = record_suppressions(session, [unsaid], tenant_id=tenant_id, cause_id=action_id, now=now)
    if isinstance(told, Told) and told.is_new:
        subject = {
            "recipient": new.about.ref,
            "channel": new.about.channel,
            "category": new.category,
            "everything": new.everything,
            "source": new.source,
            "suppressions": [str(each) for each in told.ids],
        }
        record_action(
            session,
            tenant_id=tenant_id,
            actor=actor,
            verb="suppress",
            subject=subject,
            reason=reason,
            action_id=action_id,
            now=now,
        )
    return told


def lift_suppressions(
    session: Session, ids: Collection[UUID], *, tenant_id: UUID, actor: str, reason: str, now: datetime
) -> Lifted:
    """Lift suppressions, whatever their source, each named; NoSuchSuppression when one is none of the tenant's."""
    wanted = sorted(set(ids))
    found = rows(session, NAMED, tenant=tenant_id, ids=wanted)
    if len(found) < len(wanted):
        raise NoSuchSuppression("no such suppression")
    action_id = new_id()
    lifted: list[UUID] = []
    for digest, channel in dict.fromkeys((bytes(row.address_hash), row.channel) for row in found):
        taken = lift(
            session,
            tenant_id=tenant_id,
            channel=channel,
            address_hash=digest,
            source=SuppressedBy.OPERATOR,
            cause_id=action_id,
            lifts=wanted,
            now=now,
        )
        lifted += [each.id for each in taken]
    if lifted:
        subject = {"suppressions": [str(each) for each in sorted(lifted)]}
        record_action(
            session,
            tenant_id=tenant_id,
            actor=actor,
            verb="lift_suppression",
            subject=subject,
            reason=reason,
            action_id=action_id,
            now=now,
        )
    return Lifted(tuple(sorted(lifted)), tuple(each for each in wanted if each not in lifted))
