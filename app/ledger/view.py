"""How an event stands: the one shape that acceptance, duplicates, GET and cancel answer with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from app.ground.db import run_together
from policy.states import IntentState, PublicState

EVENTS = """
SELECT e.id, e.key, e.template_name, e.template_version, e.category, e.type, e.subject, e.recipient_ref, e.accepted_at,
       e.expires_at, e.not_before, e.metadata, e.stake, p.name AS policy_name, p.version AS policy_version
FROM event e LEFT JOIN policy_version p ON p.id = e.policy_version_id
WHERE e.tenant_id = %(tenant)s AND e.id = ANY(%(ids)s::uuid[])
"""

INTENTS = """
SELECT i.event_id, i.id, i.channel, i.state, i.reason, i.next_at, false AS joined, i.close_requested_at, i.close_request
FROM intent i WHERE i.tenant_id = %(tenant)s AND i.event_id = ANY(%(ids)s::uuid[])
UNION ALL
SELECT j.event_id, i.id, i.channel, i.state, i.reason, i.next_at, true AS joined, i.close_requested_at, i.close_request
FROM joining j JOIN intent i ON i.id = j.intent_id
WHERE j.tenant_id = %(tenant)s AND j.event_id = ANY(%(ids)s::uuid[])
      -- A joined event that got an intent of its own when the first one closed speaks for itself.
      AND NOT EXISTS (SELECT FROM intent own WHERE own.event_id = j.event_id AND own.channel = j.channel)
ORDER BY 3
"""


@dataclass(frozen=True, slots=True)
class IntentView:
    """One channel of an event, in public words."""

    intent_id: UUID
    channel: str
    state: PublicState
    reason: str | None
    next_at: datetime | None
    joined: bool = False
    """The event joined an intent that an earlier one opened; it contacts nobody."""
    close_request: str | None = None
    """Asked after handoff: cancelled or expired, while the carrier already had it."""


@dataclass(frozen=True, slots=True)
class EventView:
    """An accepted event and where its channels stand."""

    event_id: UUID
    key: str
    template: str
    category: str
    policy: str | None
    intents: tuple[IntentView, ...]
    accepted_at: datetime
    expires_at: datetime
    type: str
    subject: str
    recipient_ref: str
    duplicate: bool = False


def public_state(state: str) -> PublicState:
    """Say an intent's state in public words."""
    return PublicState.HANDED_OFF if state == IntentState.IN_FLIGHT else PublicState(state)


def read_events(session: Session, *, tenant_id: UUID, event_ids: Sequence[UUID]) -> dict[UUID, EventView]:
    """Read how these events of a tenant stand; those of another are not there."""
    params = {"tenant": tenant_id, "ids": sorted(event_ids)}
    events, intents = run_together(session, [(EVENTS, params), (INTENTS, params)])
    return {e.id: _view(e, [i for i in intents if i.event_id == e.id]) for e in events}


def _view(event: Any, intents: Sequence[Any]) -> EventView:  # noqa: ANN401 - rows of the two statements above
    return EventView(
        event_id=event.id,
        key=event.key,
        template=f"{event.template_name}@{event.template_version}",
        category=event.category,
        policy=f"{event.policy_name}@{event.policy_version}" if event.policy_name else None,
        intents=tuple(
            IntentView(i.id, i.channel, public_state(i.state), i.reason, i.next_at, i.joined, i.close_request) for i in intents
        ),
        accepted_at=event.accepted_at,
        expires_at=event.expires_at,
        type=event.type,
        subject=event.subject,
        recipient_ref=event.recipient_ref,
    )
