"""Write down what a person did, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import insertion, run_together
from app.ground.ids import new_id
from models.desk import OperatorAction


def record_action(
    session: Session,
    *,
    tenant_id: UUID,
    actor: str,
    verb: str,
    subject: Mapping[str, Any],
    reason: str,
    action_id: UUID | None = None,
    now: datetime,
) -> UUID:
    """Keep one operator action; return its id, the cause of what follows, which may have been made before."""
    row = {
        "id": action_id or new_id(),
        "tenant_id": tenant_id,
        "actor": actor,
        "verb": verb,
        "subject": dict(subject),
        "reason": reason,
        "at": now,
    }
    return record_actions(session, [row])[0]


def record_actions(session: Session, actions: Sequence[Mapping[str, Any]]) -> list[UUID]:
    """Keep operator actions laid out as rows, in one statement; return their ids in order."""
    if actions:
        run_together(session, [insertion(OperatorAction, actions)])
    return [action["id"] for action in actions]
