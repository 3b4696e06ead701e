"""Ids, made in the application so that a row's id is known before it is written."""

from __future__ import annotations

from typing import NewType
from uuid import UUID

import uuid_utils.compat

TenantId = NewType("TenantId", UUID)
EventId = NewType("EventId", UUID)
IntentId = NewType("IntentId", UUID)
AttemptId = NewType("AttemptId", UUID)
RouteId = NewType("RouteId", UUID)
ReceiptId = NewType("ReceiptId", UUID)
Lease = NewType("Lease", int)


def new_id() -> UUID:
    """Make a UUIDv7: unique, and roughly in order of creation."""
    return uuid_utils.compat.uuid7()
