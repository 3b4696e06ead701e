"""What a document may say and hardly means: valid, and worth a second look before it is published."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from app.carriers.registry import CARRIERS
from app.desk.policy.line import AHEAD
from policy.document import CategoryRules, Document, NotFound, Status, Unheard
from policy.findings import rfc3339
from policy.hours import DAYS, Hours
from policy.reading import Problem
from policy.words import Category


def doubts_about(document: Document, *, now: datetime) -> list[Problem]:
    """Name what is suspicious, each with its path."""
    found = list(_of_document(document, now))
    for category, rules in document.categories.items():
        found += [*_of_hours(document, category, rules), *_of_category(category, rules)]
    return found


def _of_document(document: Document, now: datetime) -> Iterator[Problem]:
    if document.status is Status.SAMPLE:
        yield Problem("status", "is a sample: nobody has answered for it")
    if document.effective_from < now:
        yield Problem("effective_from", "is in the past: only a tenant's first version can be published so")
    elif document.effective_from < now + AHEAD:
        yield Problem(
            "effective_from", f"is less than {AHEAD.seconds} s ahead: only a tenant's first version can be published so"
        )
    if document.effective_until is not None:
        until = rfc3339(document.effective_until)
        yield Problem("effective_until", f"lets it lapse at {until}: everything waits then, unless another version starts")
        if document.effective_until <= now:
            yield Problem("effective_until", "is in the past: it would never be in force")
    if document.countries_allowed == "all":
        yield Problem("countries.allowed", "names every country: an open list is how artificial traffic is paid for")
    for category in Category:
        if category not in document.categories:
            yield Problem("categories", f"do not name {category.value}: everything of it waits, as if no version were in force")


def _of_hours(document: Document, category: Category, rules: CategoryRules) -> Iterator[Problem]:
    """Name the countries in which a category may go out at any time of day and night."""
    if rules.hours:
        return
    allowed = None if document.countries_allowed == "all" else document.countries_allowed
    own = {rule.country for rule in document.rules if rule.category is category and rule.hours and rule.subdivision is None}
    if allowed is None or not own:
        yield Problem(f"categories.{category.value}", "has no hours: it may go out at any time of day and night")
    elif without := sorted(allowed - own):
        yield Problem(f"categories.{category.value}", f"has no hours in {', '.join(without)}: any time of day and night is good")


def _of_category(category: Category, rules: CategoryRules) -> Iterator[Problem]:
    path = f"categories.{category.value}"
    if not rules.cooldown and category is not Category.OTP:
        yield Problem(f"{path}.cooldown", "leaves nobody alone: a second message may follow at once")
    if rules.cooldown >= rules.max_age:
        yield Problem(f"{path}.cooldown", "is no shorter than max_age: what waits for it is closed instead")
    if rules.retry.window > rules.max_age:
        yield Problem(f"{path}.retry.window", "is longer than max_age, which ends it first")
    yield from _of_second_attempts(path, rules)
    for index, hours in enumerate(rules.hours):
        if not _opens(hours):
            yield Problem(f"{path}.hours[{index}]", "never opens: every day of its windows is banned")


def _of_second_attempts(path: str, rules: CategoryRules) -> Iterator[Problem]:
    """Name what is said of resending and will not come to it, or comes to two texts."""
    retry, ambiguity = rules.retry, rules.ambiguity
    waited = ambiguity.waited
    resends = waited is not None and waited.then is Unheard.RESEND
    if retry.max_attempts == 1 and (retry.classes or resends or ambiguity.not_found is NotFound.RESEND):
        yield Problem(
            f"{path}.retry.max_attempts", "is 1: what was taken or refused, or may have been, is not tried again at all"
        )
    silent = ", ".join(sorted(name for name, carrier in CARRIERS.items() if not carrier.capabilities.lookup_conclusive))
    if ambiguity.not_found is NotFound.RESEND:
        yield Problem(f"{path}.ambiguity.not_found", f"never resends by routes of {silent}: their look-ups prove nothing")
    if waited is None:
        return
    if resends:
        yield Problem(f"{path}.ambiguity.waited", f"resends on silence: by routes of {silent} no look-up says if it was taken")
    if resends and waited.after >= retry.window:
        yield Problem(f"{path}.ambiguity.waited.after", "is no shorter than retry.window: it is closed instead of sent again")
    if rules.horizon is not None and waited.after >= rules.horizon:
        yield Problem(f"{path}.ambiguity.waited.after", "is no shorter than horizon, which answers first")


def _opens(hours: Hours) -> bool:
    open_days = {day for window in hours.windows for day in window.days}
    past_midnight = {
        DAYS[(DAYS.index(day) + 1) % len(DAYS)]
        for window in hours.windows
        if window.end_minute <= window.start_minute
        for day in window.days
    }
    return bool((open_days | past_midnight) - hours.banned_weekdays)
