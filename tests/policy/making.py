"""Documents and facts for the tests of policy, each with everything in order unless told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from policy.document import Document, parse
from policy.facts import Consent, Facts, Suppression, ZoneSource
from policy.replay import answers_of
from policy.words import Category, Channel

NOON = datetime(2026, 12, 1, 17, 0, tzinfo=UTC)  # a Tuesday, 12:00 in New York
NEW_YORK = "America/New_York"
EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYTIME = {"id": "daytime", "windows": [{"days": EVERY_DAY, "start": "08:00", "end": "21:00"}]}


def make_category(**changes: object) -> dict[str, Any]:
    """Write the rules of one category as YAML would give them."""
    rules: dict[str, Any] = {
        "max_age": "3d",
        "cooldown": "1h",
        "hours": None,
        "retry": {
            "classes": ["transient"],
            "max_attempts": 3,
            "backoff": {"initial": "30s", "factor": 2, "max": "10m"},
            "window": "6h",
        },
        "ambiguity": {"not_found": "review", "horizon": "close"},
    }
    return rules | changes


def make_raw(**changes: object) -> dict[str, Any]:
    """Write a whole document as YAML would give it: transactional at any hour, marketing by day."""
    raw: dict[str, Any] = {
        "name": "test",
        "version": "1",
        "owner": "compliance",
        "reviewer": None,
        "status": "sample",
        "effective_from": "2026-11-01T00:00:00Z",
        "effective_until": None,
        "channels": ["sms"],
        "countries": {"allowed": ["US", "FR"], "blocked": ["KP"]},
        "categories": {"transactional": make_category(), "marketing": make_category(hours=[DAYTIME])},
    }
    return raw | changes


def make_document(**changes: object) -> Document:
    """Make a document out of the raw one with some keys changed."""
    return parse(make_raw(**changes))


def make_marketing(**changes: object) -> Document:
    """Make a document with changed rules for marketing."""
    return make_document(categories={"marketing": make_category(**({"hours": [DAYTIME]} | changes))})


FACTS = Facts(
    channel=Channel.SMS,
    category=Category.MARKETING,
    country="US",
    zones=(NEW_YORK,),
    zone_source=ZoneSource.NUMBER,
    accepted_at=NOON - timedelta(minutes=5),
    expires_at=NOON + timedelta(days=2),
    route_available=True,
    tzdata_version="2026.6",
    phonenumbers_version="9.0.43",
)


def make_facts(**changes: Any) -> Facts:  # any field of Facts
    """Make facts about a person in New York, accepted five minutes before noon there."""
    return replace(FACTS, **changes)


def make_everything() -> Suppression:
    """Make a suppression that reaches everything."""
    return Suppression(id="s-2", category=None, source="wrong_number", at=NOON - timedelta(days=1), everything=True)


def make_suppression(category: Category | None) -> Suppression:
    """Make a suppression from the day before."""
    return Suppression(id="s-1", category=category, source="inbound", at=NOON - timedelta(days=1))


def make_consent(
    kind: str | None,
    *,
    category: Category | None = None,
    age: timedelta = timedelta(days=1),
    expires_at: datetime | None = None,
    withdrawn: bool = False,
) -> Consent:
    """Make a consent from the day before, or its withdrawal."""
    return Consent(f"c-{kind}", kind, category, NOON - age, expires_at, "v1", withdrawn)


def make_rule(**changes: object) -> dict[str, Any]:
    """Write a rule of the United States for marketing as YAML would give it; it says nothing unless told otherwise."""
    return {"id": "us", "country": "US", "channel": "sms", "category": "marketing"} | changes


def asked_of(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List which rules were asked, and the verdict each gave."""
    return [(answer.rule, answer.verdict) for answer in answers_of(evidence)]
