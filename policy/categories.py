"""What one version says about a category: how long, how often, on whose consent, and what is tried again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from policy.hours import Hours, read_hours
from policy.limits import Cap, MessageCap, read_caps, read_message_cap
from policy.reading import Node
from policy.words import Category, ErrorClass, Lane


class NotFound(StrEnum):
    """What follows when a conclusive look-up does not find an attempt in doubt."""

    RESEND = "resend"
    REVIEW = "review"
    CLOSE = "close"


class Unheard(StrEnum):
    """What follows when nothing at all was heard of an attempt in doubt for a while."""

    RESEND = "resend"
    REVIEW = "review"
    CLOSE = "close"


class RetryRoute(StrEnum):
    """By which route a failed attempt is tried again."""

    SAME = "same"
    NEXT = "next"
    """The next one by priority that is new to the intent, if what failed is known not to have been taken."""


class AtHorizon(StrEnum):
    """What follows when an attempt in doubt reaches its horizon."""

    REVIEW = "review"
    CLOSE = "close"


class Basis(StrEnum):
    """Whose consents and preferences count at dispatch: those of the acceptance, or the latest.

    Everything else is the latest always: the version in force, the hours, the ends, what is paused,
    and above all what the person asked us to stop.
    """

    ACCEPTANCE = "acceptance"
    DISPATCH = "dispatch"


class OptOutScope(StrEnum):
    """Which opt-outs cover a message of this category."""

    NAMED = "named"
    """Only one that names the category: a general STOP by text does not. Every other suppression without a category does."""
    PROGRAM = "program"
    """One that names the category, and one that names none."""
    ALL = "all"
    """Any, whatever category it names."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before a retry: `initial`, times `factor` for each further end in a row, up to `longest`."""

    initial: timedelta
    factor: int
    longest: timedelta


@dataclass(frozen=True, slots=True)
class RetryRules:
    """What may be tried again, how often in all, and for how long after acceptance."""

    classes: frozenset[ErrorClass]
    max_attempts: int
    backoff: Backoff
    window: timedelta
    route: RetryRoute = RetryRoute.SAME


@dataclass(frozen=True, slots=True)
class Waited:
    """What follows when nothing was heard of an attempt in doubt for so long after it was prepared."""

    after: timedelta
    then: Unheard


@dataclass(frozen=True, slots=True)
class AmbiguityRules:
    """What may follow when nobody knows whether the carrier took an attempt."""

    not_found: NotFound
    horizon: AtHorizon
    waited: Waited | None = None
    """None: silence before the horizon means nothing."""


@dataclass(frozen=True, slots=True)
class CategoryRules:
    """What one version says about one category; without hours any time is good, without consent kinds none is needed."""

    max_age: timedelta
    cooldown: timedelta
    hours: tuple[Hours, ...]
    retry: RetryRules
    ambiguity: AmbiguityRules
    consent: frozenset[str] = frozenset()
    opt_out: OptOutScope = OptOutScope.PROGRAM
    basis: Basis = Basis.DISPATCH
    caps: tuple[Cap, ...] = ()
    message_cap: MessageCap | None = None
    lane: Lane | None = None
    """None: the category's usual lane."""
    horizon: timedelta | None = None
    """How long an outcome is asked for; None: as long as the route's capabilities say."""
    retention: timedelta | None = None
    """How long what a message said may be kept."""


# The policy chooses only about these. What was certainly not taken always goes again, and what is
# permanent, opted out or not understood never does (see `retry`).
CHOSEN: Final = frozenset({ErrorClass.TRANSIENT, ErrorClass.BOUNCED_LATE})

_OPTIONAL: Final = ("hours", "consent", "opt_out", "basis", "caps", "message_cap", "lane", "horizon", "retention")


def read_categories(node: Node) -> dict[Category, CategoryRules]:
    """Read the rules of each category that the version speaks of."""
    return {key.word(Category): _category(rules) for key, rules in node.entries()}


def _category(node: Node) -> CategoryRules:
    fields = node.fields(required=("max_age", "cooldown", "retry", "ambiguity"), optional=_OPTIONAL)
    given = {name: fields[name] for name in _OPTIONAL if not fields[name].is_absent()}
    return CategoryRules(
        max_age=fields["max_age"].duration(),
        cooldown=fields["cooldown"].duration(zero=True),
        hours=tuple(map(read_hours, given["hours"].items())) if "hours" in given else (),
        retry=_retry(fields["retry"]),
        ambiguity=_ambiguity(fields["ambiguity"]),
        consent=given["consent"].texts() if "consent" in given else frozenset(),
        opt_out=given["opt_out"].word(OptOutScope) if "opt_out" in given else OptOutScope.PROGRAM,
        basis=given["basis"].word(Basis) if "basis" in given else Basis.DISPATCH,
        caps=read_caps(fields["caps"]),
        message_cap=read_message_cap(fields["message_cap"]),
        lane=given["lane"].word(Lane) if "lane" in given else None,
        horizon=given["horizon"].duration() if "horizon" in given else None,
        retention=given["retention"].duration(zero=True) if "retention" in given else None,
    )


def _retry(node: Node) -> RetryRules:
    fields = node.fields(required=("classes", "max_attempts", "backoff", "window"), optional=("route",))
    classes = [(item, item.word(ErrorClass)) for item in fields["classes"].items()]
    for item, error_class in classes:
        if item.value == error_class.value and error_class not in CHOSEN:
            item.wrong(f"is not the policy's to choose; only {', '.join(sorted(CHOSEN))} are")
    return RetryRules(
        classes=frozenset(error_class for _, error_class in classes),
        max_attempts=fields["max_attempts"].whole(at_least=1),
        backoff=_backoff(fields["backoff"]),
        window=fields["window"].duration(),
        route=RetryRoute.SAME if fields["route"].is_absent() else fields["route"].word(RetryRoute),
    )


def _backoff(node: Node) -> Backoff:
    fields = node.fields(required=("initial", "factor", "max"))
    backoff = Backoff(
        initial=fields["initial"].duration(),
        factor=fields["factor"].whole(at_least=1),
        longest=fields["max"].duration(),
    )
    if backoff.longest < backoff.initial:
        fields["max"].wrong("must not be shorter than initial")
    return backoff


def _ambiguity(node: Node) -> AmbiguityRules:
    fields = node.fields(required=("not_found", "horizon"), optional=("waited",))
    return AmbiguityRules(
        not_found=fields["not_found"].word(NotFound),
        horizon=fields["horizon"].word(AtHorizon),
        waited=None if fields["waited"].is_absent() else _waited(fields["waited"]),
    )


def _waited(node: Node) -> Waited:
    fields = node.fields(required=("after", "then"))
    return Waited(after=fields["after"].duration(), then=fields["then"].word(Unheard))
