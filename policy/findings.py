"""What a rule may say, and how it is written down as evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias, assert_never

from policy.words import Reason, Verdict

Json: TypeAlias = "bool | int | str | Sequence[Json] | Mapping[str, Json] | None"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The rule has no objection, up to `until` (exclusive) where it knows an end."""

    until: datetime | None = None
    saw: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The rule objects until `not_before`, which lies after the instant it was asked about."""

    reason: Reason
    not_before: datetime
    saw: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule objects for good."""

    reason: Reason
    saw: Mapping[str, Json] = field(default_factory=dict)


Finding: TypeAlias = Allowed | Waiting | Refused


def rfc3339(instant: datetime) -> str:
    """Write an aware instant in UTC."""
    return f"{instant.astimezone(UTC).isoformat()[:-6]}Z"  # in UTC it ends in +00:00


def rfc3339_or_none(instant: datetime | None) -> str | None:
    """Write an instant that may be missing."""
    return None if instant is None else rfc3339(instant)


def words_of(finding: Finding) -> dict[str, Json]:
    """Write what a rule said as plain JSON values."""
    match finding:
        case Allowed(until=until):
            return {"verdict": Verdict.ALLOW.value, "until": rfc3339_or_none(until)}
        case Waiting(reason=Reason.NO_POLICY):
            # It only says when to look again, and that moves with `now`; see `policy.replay.same`.
            return {"verdict": Verdict.DEFER.value, "reason": Reason.NO_POLICY.value}
        case Waiting(reason=reason, not_before=not_before):
            return {"verdict": Verdict.DEFER.value, "reason": reason.value, "not_before": rfc3339(not_before)}
        case Refused(reason=reason):
            return {"verdict": Verdict.SUPPRESS.value, "reason": reason.value}
        case _:
            assert_never(finding)
