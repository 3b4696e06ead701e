"""Which country rules speak of a person: by country, its parts, channel, category and local date."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final

from policy.categories import OptOutScope
from policy.countries import UNKNOWN_SUBDIVISION, CountryRule, holds
from policy.document import Document
from policy.facts import Facts
from policy.hours import Almanac, Hours
from policy.limits import Price
from policy.zones import find_zone

_DAY: Final = timedelta(days=1)


def matching(document: Document, facts: Facts) -> tuple[CountryRule, ...]:
    """Give the rules that speak of this person on any date, the whole country's first."""
    if not document.rules:
        return ()
    key = ("matching", *_place(facts))
    found: tuple[CountryRule, ...] | None = document.found.get(key)
    if found is None:
        found = document.found[key] = _match(document, facts)
    return found


def _match(document: Document, facts: Facts) -> tuple[CountryRule, ...]:
    wanted = {None, *facts.subdivisions} if facts.subdivisions else {None, UNKNOWN_SUBDIVISION}
    rules = [
        rule
        for rule in document.rules
        if (rule.country, rule.channel, rule.category) == (facts.country, facts.channel, facts.category)
        and rule.subdivision in wanted
    ]
    return tuple(sorted(rules, key=lambda rule: rule.subdivision is not None))


def in_force(document: Document, facts: Facts, now: datetime) -> tuple[CountryRule, ...]:
    """Give the rules that hold now: on the local date in any of the zones the person may be in."""
    rules = matching(document, facts)
    if not rules:
        return ()
    today = now.astimezone(UTC).date()
    key = ("in_force", *_place(facts))
    kept: tuple[date, tuple[CountryRule, ...]] | None = document.found.get(key)
    if kept is not None and kept[0] == today:
        return kept[1]
    dates = _dates(rules, facts, now)
    found = tuple(rule for rule in rules if any(rule.holds_on(day) for day in dates))
    if not _turns_near(rules, today):  # so it is the same for everybody in this place, all day long
        document.found[key] = (today, found)
    return found


def next_change(document: Document, facts: Facts, now: datetime) -> datetime | None:
    """Find the first instant after now at which a rule, or an opt-out's scope, begins or ends somewhere."""
    rules = matching(document, facts)
    if not rules:
        return None
    key = ("next_change", *_place(facts), facts.zones)
    kept: tuple[datetime, datetime | None] | None = document.found.get(key)
    if kept is not None and kept[0] <= now and (kept[1] is None or now < kept[1]):
        return kept[1]
    today = now.astimezone(UTC).date()
    ahead = {edge for rule in rules for edge in rule.edges if edge >= today - _DAY}
    starts = (start for edge in ahead for start in _starts(edge, facts))
    change = min((start for start in starts if start > now), default=None)
    document.found[key] = (now, change)
    return change


def opt_out_scope(document: Document, facts: Facts, now: datetime) -> OptOutScope:
    """Say which opt-outs cover this message: what its category says, and all of them where a rule says so."""
    rules = in_force(document, facts, now)
    terms = [each for rule in rules for each in rule.opt_out]
    if terms:
        dates = _dates(rules, facts, now)
        wide = (each for each in terms if each.scope is OptOutScope.ALL)
        if any(holds(each.effective_from, each.effective_until, day) for each in wide for day in dates):
            return OptOutScope.ALL
    return document.categories[facts.category].opt_out


def price_of(document: Document, facts: Facts, now: datetime) -> Price | None:
    """Price the message: its segments, at the price of the rule that is nearest to the person, else of the country."""
    if facts.segment_count is None or facts.country is None:
        return None
    price = document.prices.get((facts.channel, facts.country))
    for rule in in_force(document, facts, now):
        price = rule.price or price  # those of a part of the country come last
    return None if price is None else Price(price.amount * facts.segment_count, price.currency)


def hours_of(document: Document, facts: Facts) -> tuple[Hours, ...]:
    """Give all hours that speak of this person; each knows on which local dates it holds."""
    own = document.categories[facts.category].hours
    return (*own, *(rule.hours for rule in matching(document, facts) if rule.hours is not None))


def almanac_of(document: Document, facts: Facts) -> tuple[tuple[Hours, ...], Almanac | None]:
    """Give the hours and their almanac; None where the clock of one of the person's zones is not known, or of all."""
    key = ("almanac", *_place(facts), facts.zones)
    found: tuple[tuple[Hours, ...], Almanac | None] | None = document.found.get(key)
    if found is None:
        zones = [find_zone(name) for name in facts.zones]
        known = [zone for zone in zones if zone is not None]
        hours = hours_of(document, facts)
        found = document.found[key] = (hours, Almanac(hours, known) if known and len(known) == len(zones) else None)
    return found


def _dates(rules: Iterable[CountryRule], facts: Facts, now: datetime) -> frozenset[date]:
    """Give the dates that it is now for this person; where no rule turns near them, that of UTC does as well."""
    today = now.astimezone(UTC).date()
    if not _turns_near(rules, today):
        return frozenset({today})
    zones = [zone for zone in map(find_zone, facts.zones) if zone is not None]
    return frozenset(now.astimezone(zone).date() for zone in zones) or frozenset({today})


def _turns_near(rules: Iterable[CountryRule], today: date) -> bool:
    """Say whether a rule begins or ends so near to a date in UTC that it may be another date where the person is."""
    return any(abs(edge - today) <= _DAY for rule in rules for edge in rule.edges)


def _place(facts: Facts) -> tuple[str | None, tuple[str, ...], str, str]:
    return facts.country, facts.subdivisions, facts.channel, facts.category


def _starts(day: date, facts: Facts) -> list[datetime]:
    """Give the instants at which a date begins in the person's zones."""
    known = [zone for zone in map(find_zone, facts.zones) if zone is not None]
    zones: Sequence[tzinfo] = known or [UTC]
    return [datetime.combine(day, time(), tzinfo=zone).astimezone(UTC) for zone in zones]
