"""No carrier at all: takes everything at once, in this process, and says nothing more. For figures only."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Unpack
from uuid import uuid4

from app.carriers.base import (
    Call,
    CancelResult,
    Capabilities,
    LookUpResult,
    NotHandedOff,
    PollResult,
    ReadInbound,
    ReadReceipt,
    Receipts,
    RouteSettings,
    SendResult,
    Silence,
    Submission,
    Submitted,
    Unanswered,
)
from app.carriers.http import Network, RouteMisconfigured, boottime

NOT_OFFERED: Final = Unanswered("not_offered")


class Null:
    """Where a submission goes that must cost nothing but our own work. It contacts nobody."""

    name = "null"
    capabilities = Capabilities(
        idempotency_key=False,
        reference_echoed=False,
        receipts=Receipts.NONE,
        polls=False,
        cancels=False,
        looks_up=False,
        lookup_conclusive=False,
        validity_period=False,
        settling_for=timedelta(0),
        horizon_for=timedelta(hours=24),
    )
    silence = Silence("text/plain", b"")

    def __init__(self, route: RouteSettings, **network: Unpack[Network]) -> None:
        if route.settings.get("contacts") != "nobody":  # a slip in a real route must not swallow texts
            raise RouteMisconfigured("the null carrier contacts nobody, and its route must say so: contacts = nobody")
        self.route = route
        self.clock = network.get("clock", boottime)

    def close(self) -> None:
        """Close nothing: there is no connection."""

    def send(self, submission: Submission, *, deadline: float) -> SendResult:  # noqa: ARG002 (whatever it is, it is taken)
        """Take the submission under a new remote id, unless its time has passed."""
        if self.clock() >= deadline:
            return NotHandedOff("deadline_passed")
        return Submitted((uuid4().hex,))

    def poll(self, remote_id: str) -> PollResult:  # noqa: ARG002 (nobody remembers)
        """Answer nothing."""
        return NOT_OFFERED

    def look_up(self, address: str) -> LookUpResult:  # noqa: ARG002 (nobody remembers)
        """Answer nothing."""
        return NOT_OFFERED

    def cancel(self, remote_id: str) -> CancelResult:  # noqa: ARG002 (nobody remembers)
        """Answer nothing."""
        return NOT_OFFERED

    def is_authentic(self, call: Call, *, url: str | None = None) -> bool:  # noqa: ARG002 (it calls nobody)
        """Refuse every call: this carrier makes none."""
        return False

    def read_receipt(self, call: Call) -> ReadReceipt:  # noqa: ARG002 (it calls nobody)
        """Raise ValueError: this carrier calls nobody."""
        raise ValueError("no receipts")

    def read_inbound(self, call: Call) -> ReadInbound:  # noqa: ARG002 (it calls nobody)
        """Raise ValueError: this carrier calls nobody."""
        raise ValueError("no texts")
