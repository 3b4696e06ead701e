"""Mark gates: a decision taken before somebody took something back admits nothing any more."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from app.ground.db import Statement, insertion
from app.ground.keys import lasting_hash
from app.people.suppress import MARK
from models.work import Gate


def marks(hashes: Iterable[bytes], *, tenant_id: UUID, now: datetime) -> list[Statement]:
    """Give the statement that marks these addresses' gates, in the order in which prepare locks them; none for nobody.

    The mark is the one that suppressions leave. Prepare compares it for identity with what the decision
    saw and, where they differ, puts the row back to be decided again; it does not ask what the mark was
    for. So a withdrawal needs no mark of its own, and a mark too many costs one more decision. It comes
    before the evidence in its transaction: whoever prepares meanwhile waits for the gate and then finds
    both, or was first.
    """
    gates = [
        {
            "tenant_id": tenant_id,
            "address_hash": digest,
            "hash_key_id": lasting_hash("gate", b"").key_id,
            "slots": {},
            "suppressed_at": now,
            "changed_at": now,
        }
        for digest in sorted(set(hashes))
    ]
    return [insertion(Gate, gates, tail=MARK)] if gates else []
