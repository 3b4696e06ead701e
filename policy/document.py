"""One policy version: parsed, validated and hashed, so that a decision can name what it followed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from policy.hours import Day, Hours, Window
from policy.reading import Node, Problem
from policy.words import Category, Channel, ErrorClass


class Status(StrEnum):
    """Whether a person has answered for the document."""

    SAMPLE = "sample"
    REVIEWED = "reviewed"


class NotFound(StrEnum):
    """What follows when a conclusive look-up does not find an attempt in doubt."""

    RESEND = "resend"
    REVIEW = "review"
    CLOSE = "close"


class AtHorizon(StrEnum):
    """What follows when an attempt in doubt reaches its horizon."""

    REVIEW = "review"
    CLOSE = "close"


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


@dataclass(frozen=True, slots=True)
class AmbiguityRules:
    """What may follow when nobody knows whether the carrier took an attempt."""

    not_found: NotFound
    horizon: AtHorizon


@dataclass(frozen=True, slots=True)
class CategoryRules:
    """What one version says about one category; without hours any time is good."""

    max_age: timedelta
    cooldown: timedelta
    hours: tuple[Hours, ...]
    retry: RetryRules
    ambiguity: AmbiguityRules


@dataclass(frozen=True, slots=True)
class Document:
    """One immutable policy version; `sha256` is over the canonical JSON of what was parsed."""

    name: str
    version: str
    owner: str
    reviewer: str | None
    status: Status
    effective_from: datetime
    effective_until: datetime | None
    channels: frozenset[Channel]
    countries_allowed: frozenset[str] | Literal["all"]
    countries_blocked: frozenset[str]
    categories: Mapping[Category, CategoryRules]
    sha256: str

    @property
    def label(self) -> str:
        """Name the version as the API does: `sample@2026-11-01`."""
        return f"{self.name}@{self.version}"


class InvalidDocument(ValueError):
    """A document cannot be used; `problems` holds every mistake with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)


# The policy chooses only about these. What was certainly not taken always goes again, and what is
# permanent, opted out or not understood never does (see `retry`).
CHOSEN: Final = frozenset({ErrorClass.TRANSIENT, ErrorClass.BOUNCED_LATE})

_COUNTRY: Final = re.compile(r"[A-Z]{2}")  # also XK, which phone numbers know and ISO 3166-1 does not


def parse(raw: Mapping[str, object]) -> Document:
    """Read one version out of a mapping as YAML gives it, or raise InvalidDocument with every mistake."""
    root = Node(raw)
    fields = root.fields(
        required=("name", "version", "owner", "status", "effective_from", "channels", "countries", "categories"),
        optional=("reviewer", "effective_until"),
    )
    reviewer, until, countries = fields["reviewer"], fields["effective_until"], fields["countries"]
    allowed, blocked = _countries(countries)
    document = Document(
        name=fields["name"].text(),
        version=fields["version"].text(),
        owner=fields["owner"].text(),
        reviewer=None if reviewer.is_absent() else reviewer.text(),
        status=fields["status"].word(Status),
        effective_from=fields["effective_from"].instant(),
        effective_until=None if until.is_absent() else until.instant(),
        channels=frozenset(item.word(Channel) for item in fields["channels"].items(some=True)),
        countries_allowed=allowed,
        countries_blocked=blocked,
        categories={key.word(Category): _category(rules) for key, rules in fields["categories"].entries()},
        sha256="" if root.problems else _sha256(raw),
    )
    if document.status is Status.REVIEWED and document.reviewer is None:
        reviewer.problems.append(Problem("reviewer", "must name who reviewed it"))
    if document.effective_until is not None and document.effective_until <= document.effective_from:
        until.wrong("must be later than effective_from")
    if root.problems:
        raise InvalidDocument(root.problems)
    return document


def _sha256(raw: Mapping[str, object]) -> str:
    canonical = json.dumps(raw, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _countries(node: Node) -> tuple[frozenset[str] | Literal["all"], frozenset[str]]:
    fields = node.fields(required=("allowed",), optional=("blocked",))
    blocked = frozenset() if fields["blocked"].is_absent() else frozenset(map(_country, fields["blocked"].items()))
    if fields["allowed"].value == "all":
        return "all", blocked
    allowed = frozenset(map(_country, fields["allowed"].items()))
    if allowed & blocked:
        fields["blocked"].wrong(f"also allowed: {', '.join(sorted(allowed & blocked))}")
    return allowed, blocked


def _country(node: Node) -> str:
    country = node.text()
    if country and not _COUNTRY.fullmatch(country):
        node.wrong("must be a country's two capital letters (ISO 3166-1 alpha-2)")
    return country


def _category(node: Node) -> CategoryRules:
    fields = node.fields(required=("max_age", "cooldown", "retry", "ambiguity"), optional=("hours",))
    hours = [] if fields["hours"].is_absent() else fields["hours"].items()
    return CategoryRules(
        max_age=fields["max_age"].duration(),
        cooldown=fields["cooldown"].duration(zero=True),
        hours=tuple(map(_hours, hours)),
        retry=_retry(fields["retry"]),
        ambiguity=_ambiguity(fields["ambiguity"]),
    )


def _hours(node: Node) -> Hours:
    fields = node.fields(required=("id", "windows"), optional=("banned_weekdays", "banned_dates"))
    weekdays, dates = fields["banned_weekdays"], fields["banned_dates"]
    return Hours(
        id=fields["id"].text(),
        windows=tuple(map(_window, fields["windows"].items(some=True))),
        banned_weekdays=frozenset() if weekdays.is_absent() else frozenset(map(_day, weekdays.items())),
        banned_dates=frozenset() if dates.is_absent() else frozenset(item.calendar_date() for item in dates.items()),
    )


def _window(node: Node) -> Window:
    fields = node.fields(required=("days", "start", "end"))
    start, end = fields["start"].minute_of_day(), fields["end"].minute_of_day(end=True)
    if start == end and fields["start"].value == fields["end"].value:
        fields["end"].wrong('must differ from start; a whole day is "00:00" to "24:00"')
    return Window(days=frozenset(map(_day, fields["days"].items(some=True))), start_minute=start, end_minute=end)


def _day(node: Node) -> Day:
    return node.word(Day)


def _retry(node: Node) -> RetryRules:
    fields = node.fields(required=("classes", "max_attempts", "backoff", "window"))
    classes = [(item, item.word(ErrorClass)) for item in fields["classes"].items()]
    for item, error_class in classes:
        if item.value == error_class.value and error_class not in CHOSEN:
            item.wrong(f"is not the policy's to choose; only {', '.join(sorted(CHOSEN))} are")
    return RetryRules(
        classes=frozenset(error_class for _, error_class in classes),
        max_attempts=fields["max_attempts"].whole(at_least=1),
        backoff=_backoff(fields["backoff"]),
        window=fields["window"].duration(),
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
    fields = node.fields(required=("not_found", "horizon"))
    return AmbiguityRules(not_found=fields["not_found"].word(NotFound), horizon=fields["horizon"].word(AtHorizon))
