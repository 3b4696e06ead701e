"""Rules of a country, or a part of it, for one channel and category; each may begin and end within a version."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, Literal

from policy.categories import OptOutScope
from policy.hours import DAYS, MINUTES_PER_DAY, Hours, Window, read_days, read_windows
from policy.limits import Cap, MessageCap, Price, read_caps, read_country, read_message_cap, read_price
from policy.reading import Node
from policy.words import Category, Channel

# The part of a country where nobody knows which part it is.
UNKNOWN_SUBDIVISION: Final = "*unknown"

_SUBDIVISION: Final = re.compile(r"[A-Z0-9]{1,3}")
_ALL_DAY: Final = Window(days=frozenset(DAYS), start_minute=0, end_minute=MINUTES_PER_DAY)


@dataclass(frozen=True, slots=True)
class OptOut:
    """How an opt-out must be offered and heard, and what it covers, between two dates.

    Only the scope decides anything; the rest is for the people who write the texts.
    """

    scope: OptOutScope
    effective_from: date | None
    effective_until: date | None
    terms: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CountryRule:
    """One named rule. Its dates are local: it holds on a person's calendar, from its first day until the day it ends."""

    id: str
    country: str
    subdivision: str | None
    channel: Channel
    category: Category
    effective_from: date | None
    effective_until: date | None
    hours: Hours | None
    caps: tuple[Cap, ...]
    consent: frozenset[str]
    opt_out: tuple[OptOut, ...]
    senders: frozenset[str]
    price: Price | None
    message_cap: MessageCap | None
    grade: str | None
    """How good the source is that the rule was taken from."""

    @property
    def edges(self) -> tuple[date, ...]:
        """Give the dates on which this rule, or its opt-out's scope, begins or ends."""
        dates = [self.effective_from, self.effective_until]
        dates += [edge for each in self.opt_out for edge in (each.effective_from, each.effective_until)]
        return tuple(edge for edge in dates if edge is not None)

    def holds_on(self, day: date) -> bool:
        """Say whether the rule is in force on a local date."""
        return holds(self.effective_from, self.effective_until, day)


def holds(first: date | None, end: date | None, day: date) -> bool:
    """Say whether a day lies in a span of dates, the end exclusive."""
    return (first is None or first <= day) and (end is None or day < end)


def read_countries(node: Node) -> tuple[frozenset[str] | Literal["all"], frozenset[str]]:
    """Read which countries are allowed, and which are blocked whatever else is said."""
    fields = node.fields(required=("allowed",), optional=("blocked",))
    blocked = frozenset() if fields["blocked"].is_absent() else frozenset(map(read_country, fields["blocked"].items()))
    if fields["allowed"].value == "all":
        return "all", blocked
    allowed = frozenset(map(read_country, fields["allowed"].items()))
    if allowed & blocked:
        fields["blocked"].wrong(f"also allowed: {', '.join(sorted(allowed & blocked))}")
    return allowed, blocked


def read_holidays(node: Node) -> dict[str, frozenset[date]]:
    """Read the named lists of days that rules refer to."""
    if node.is_absent():
        return {}
    return {key.text(): frozenset(day.calendar_date() for day in days.items()) for key, days in node.entries()}


def read_rules(node: Node, holidays: Mapping[str, frozenset[date]]) -> tuple[CountryRule, ...]:
    """Read the rules by country; two may not have one name."""
    if node.is_absent():
        return ()
    rules: list[CountryRule] = []
    for item in node.items():
        rule = _rule(item, holidays)
        if any(rule.id == other.id for other in rules):
            item.wrong(f"has the id {rule.id!r} of another rule")
        rules.append(rule)
    return tuple(rules)


_OPTIONAL: Final = (
    "subdivision", "effective_from", "effective_until", "windows", "banned_weekdays", "banned_holidays", "caps", "consent",
    "opt_out", "senders", "price", "message_cap", "grade",
)  # fmt: skip


def _rule(node: Node, holidays: Mapping[str, frozenset[date]]) -> CountryRule:
    fields = node.fields(required=("id", "country", "channel", "category"), optional=_OPTIONAL)
    subdivision, grade = fields["subdivision"], fields["grade"]
    rule = CountryRule(
        id=fields["id"].text(),
        country=read_country(fields["country"]),
        subdivision=None if subdivision.is_absent() else _subdivision(subdivision),
        channel=fields["channel"].word(Channel),
        category=fields["category"].word(Category),
        effective_from=_date_or_none(fields["effective_from"]),
        effective_until=_date_or_none(fields["effective_until"]),
        hours=None,
        caps=read_caps(fields["caps"]),
        consent=frozenset() if fields["consent"].is_absent() else fields["consent"].texts(some=True),
        opt_out=() if fields["opt_out"].is_absent() else tuple(map(_opt_out, fields["opt_out"].items())),
        senders=frozenset() if fields["senders"].is_absent() else fields["senders"].texts(some=True),
        price=read_price(fields["price"]),
        message_cap=read_message_cap(fields["message_cap"]),
        grade=None if grade.is_absent() else grade.text(),
    )
    _in_order(fields["effective_until"], rule.effective_from, rule.effective_until)
    return replace(rule, hours=_hours(fields, rule, holidays))


def _subdivision(node: Node) -> str:
    subdivision = node.text()
    if subdivision and subdivision != UNKNOWN_SUBDIVISION and not _SUBDIVISION.fullmatch(subdivision):
        node.wrong(f'must be the part after the country\'s own letters in ISO 3166-2, or "{UNKNOWN_SUBDIVISION}"')
    return subdivision


def _hours(fields: Mapping[str, Node], rule: CountryRule, holidays: Mapping[str, frozenset[date]]) -> Hours | None:
    """Read the hours; bans without windows leave whole days open."""
    named = [] if fields["banned_holidays"].is_absent() else fields["banned_holidays"].items()
    for item in named:
        if item.text() and item.value not in holidays:
            item.wrong(f"is not among the holidays of this document: {', '.join(sorted(holidays)) or 'there are none'}")
    banned: frozenset[date] = frozenset().union(*(holidays.get(str(item.value), frozenset()) for item in named))
    weekdays = read_days(fields["banned_weekdays"])
    windows = () if fields["windows"].is_absent() else read_windows(fields["windows"])
    if not (windows or banned or weekdays):
        return None
    return Hours(
        id=rule.id,
        windows=windows or (_ALL_DAY,),
        banned_weekdays=weekdays,
        banned_dates=banned,
        effective_from=rule.effective_from,
        effective_until=rule.effective_until,
    )


# What a text or an inbox must offer. Kept with the version and its hash, and read by people.
_TERMS: Final[Mapping[str, Callable[[Node], object]]] = {
    "honour_within": Node.text,
    "keywords": lambda node: sorted(node.texts(some=True)),
    "every_message": Node.flag,
    "url_or_button": Node.flag,
    "registry": Node.flag,
    "free_080": Node.flag,
    "operator_short_code": Node.text,
    "label": Node.text,
    "mechanism_valid_days": lambda node: node.whole(at_least=1),
}


def _opt_out(node: Node) -> OptOut:
    fields = node.fields(required=(), optional=("scope", "effective_from", "effective_until", *_TERMS))
    scope = fields["scope"]
    opt_out = OptOut(
        scope=OptOutScope.PROGRAM if scope.is_absent() else scope.word(OptOutScope),
        effective_from=_date_or_none(fields["effective_from"]),
        effective_until=_date_or_none(fields["effective_until"]),
        terms={name: read(fields[name]) for name, read in _TERMS.items() if not fields[name].is_absent()},
    )
    _in_order(fields["effective_until"], opt_out.effective_from, opt_out.effective_until)
    return opt_out


def _date_or_none(node: Node) -> date | None:
    return None if node.is_absent() else node.calendar_date()


def _in_order(node: Node, first: date | None, end: date | None) -> None:
    if first is not None and end is not None and end <= first:
        node.wrong("must be later than effective_from")
