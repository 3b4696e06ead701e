"""The lock of an occasion: whoever accepts events of a type and subject shares it, whoever cancels them all has it alone."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from app.ground.db import Statement

# Released at the commit, as all that works behind a pooler must be. In the order given, which is sorted:
# two batches and two cancellations cannot wait for each other in a circle.
SHARE = "SELECT pg_advisory_xact_lock_shared(%(space)s, occasion) FROM unnest(%(occasions)s::int[]) AS occasion"
ALONE = "SELECT pg_advisory_xact_lock(%(space)s, %(occasion)s)"

SPACE: Final = 7
"""The first half of the lock's number: nothing else locks in it."""
# Postgres's table of locks has room for some thousands in all, and a batch may name a thousand occasions.
# Occasions that share a number wait for one another's cut, which takes milliseconds.
NUMBERS: Final = 128


def share(tenant_id: UUID, occasions: Iterable[tuple[str, str]]) -> Statement:
    """Give the statement that shares the locks of these types and subjects until the commit.

    It goes before the reads it protects: each of them sees what a cancellation committed that it waited for.
    """
    return SHARE, {"space": SPACE, "occasions": sorted({_number(tenant_id, *occasion) for occasion in occasions})}


def alone(tenant_id: UUID, occasion: tuple[str, str]) -> Statement:
    """Give the statement that waits for every acceptance of a type and subject, and keeps others out until the commit."""
    return ALONE, {"space": SPACE, "occasion": _number(tenant_id, *occasion)}


def _number(tenant_id: UUID, kind: str, subject: str) -> int:
    name = b"\0".join((tenant_id.bytes, kind.encode(), subject.encode()))
    return int.from_bytes(hashlib.blake2b(name, digest_size=4).digest()) % NUMBERS
