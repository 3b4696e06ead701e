"""One policy version: parsed, validated and hashed, so that a decision can name what it followed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal

from policy.categories import (
    CHOSEN,
    AmbiguityRules,
    AtHorizon,
    Backoff,
    Basis,
    CategoryRules,
    NotFound,
    OptOutScope,
    RetryRoute,
    RetryRules,
    Unheard,
    Waited,
    read_categories,
)
from policy.countries import CountryRule, read_countries, read_holidays, read_rules
from policy.limits import Price, read_prices
from policy.rates import Rate, read_rate
from policy.reading import Node, Problem
from policy.spending import read_most
from policy.words import Category, Channel, NumberType

__all__ = [
    "CHOSEN",
    "AmbiguityRules",
    "AtHorizon",
    "Backoff",
    "Basis",
    "CategoryRules",
    "Document",
    "InvalidDocument",
    "NotFound",
    "OptOutScope",
    "RetryRoute",
    "RetryRules",
    "Status",
    "Unheard",
    "Waited",
    "parse",
]


class Status(StrEnum):
    """Whether a person has answered for the document."""

    SAMPLE = "sample"
    REVIEWED = "reviewed"


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
    number_types: frozenset[NumberType] | None = None
    """Which kinds of number may be contacted; None: any that is valid."""
    prices: Mapping[tuple[Channel, str], Price] = field(default_factory=dict)
    """What a segment costs, where no rule says otherwise."""
    rate: Rate | None = None
    """How fast the tenant sends at most, over all of its routes."""
    spend_per_day: Decimal | None = None
    """What the tenant may spend on a day (UTC), in the one currency that the document speaks of."""
    breaker_per_hour: Decimal | None = None
    """What may be spent in an hour on one route in one country before it is paused."""
    rules: tuple[CountryRule, ...] = ()
    found: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was looked up before, kept because it is asked for thousands of times a second; see `policy.applicable`."""

    @property
    def label(self) -> str:
        """Name the version as the API does: `sample@2026-11-01`."""
        return f"{self.name}@{self.version}"

    @property
    def currency(self) -> str | None:
        """Name the currency that the document speaks of; None where it names no price."""
        return next(iter(currencies_of(self)), None)

    @property
    def caps_spend(self) -> bool:
        """Say whether what is spent must be counted."""
        return self.spend_per_day is not None or self.breaker_per_hour is not None

    @property
    def longest_cap(self) -> timedelta | None:
        """Say how far back handoffs must be remembered for the caps; None where there are none."""
        caps = [*(rules.caps for rules in self.categories.values()), *(rule.caps for rule in self.rules)]
        return max((cap.window for each in caps for cap in each), default=None)


class InvalidDocument(ValueError):
    """A document cannot be used; `problems` holds every mistake with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = list(problems)


def parse(raw: Mapping[str, object]) -> Document:
    """Read one version out of a mapping as YAML gives it, or raise InvalidDocument with every mistake."""
    root = Node(raw)
    fields = root.fields(
        required=("name", "version", "owner", "status", "effective_from", "channels", "countries", "categories"),
        optional=("reviewer", "effective_until", "number_types", "prices", "rate", "spend", "breaker", "holidays", "rules"),
    )
    reviewer, until, types = fields["reviewer"], fields["effective_until"], fields["number_types"]
    allowed, blocked = read_countries(fields["countries"])
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
        categories=read_categories(fields["categories"]),
        number_types=None if types.is_absent() else frozenset(item.word(NumberType) for item in types.items(some=True)),
        prices=read_prices(fields["prices"]),
        rate=read_rate(fields["rate"]),
        spend_per_day=read_most(fields["spend"], "per_day"),
        breaker_per_hour=read_most(fields["breaker"], "per_hour"),
        rules=read_rules(fields["rules"], read_holidays(fields["holidays"])),
        sha256="" if root.problems else _sha256(raw),
    )
    if document.status is Status.REVIEWED and document.reviewer is None:
        reviewer.problems.append(Problem("reviewer", "must name who reviewed it"))
    if document.effective_until is not None and document.effective_until <= document.effective_from:
        until.wrong("must be later than effective_from")
    _check_currency(document, fields["rules"])
    if root.problems:
        raise InvalidDocument(root.problems)
    return document


def _check_currency(document: Document, node: Node) -> None:
    """Hold a version to one currency, so that what is dear can be said in it; and to some price where it is said."""
    currencies = currencies_of(document)
    caps = [*(rule.message_cap for rule in document.rules), *(rules.message_cap for rules in document.categories.values())]
    if len(currencies) > 1:
        node.wrong("names prices in more than one currency")
    if not currencies and any(cap is not None and cap.max_price is not None for cap in caps):
        node.problems.append(Problem("prices", "is missing, and a cap per message names a max_price"))
    elif not currencies and document.caps_spend:
        node.problems.append(Problem("prices", "is missing, and without prices nothing is ever spent"))


def currencies_of(document: Document) -> frozenset[str]:
    """Give the currencies in which a document names prices."""
    rules = (rule.price for rule in document.rules if rule.price is not None)
    return frozenset(price.currency for price in (*document.prices.values(), *rules))


def _sha256(raw: Mapping[str, object]) -> str:
    canonical = json.dumps(raw, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
