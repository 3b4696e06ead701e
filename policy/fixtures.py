"""Decision fixtures: what one pinned policy version must say about given facts at a given instant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any, Final

from policy.decide import Decision, decide
from policy.document import Document
from policy.facts import Facts, ZoneSource
from policy.findings import rfc3339_or_none
from policy.reading import Node, Problem
from policy.replay import Answer, answers_of, facts_of
from policy.words import Category, Channel, Reason, Verdict

# Of library versions only the evidence speaks; a fixture runs under whatever is installed.
_HERE: Final = "as installed"


class InvalidFixture(ValueError):
    """A fixture cannot be read; `problems` holds every mistake with its place."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = list(problems)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the decision must be; `not_before` comes with a deferral and `reason` with all but an allowance."""

    verdict: Verdict
    reason: Reason | None
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class Case:
    """Facts, an instant, and what must be said."""

    name: str
    facts: Facts
    now: datetime
    expected: Expected


@dataclass(frozen=True, slots=True)
class Fixture:
    """Cases for one version: `policy` is a file beside the fixture or a published label, `sha256` the version's hash."""

    policy: str
    sha256: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that was decided otherwise."""

    case: Case
    decision: Decision

    def lines(self) -> list[str]:
        """Say the difference, and what each rule said."""
        got, due = self.decision, self.case.expected
        said = [_told(answer) for answer in answers_of(got.evidence)]
        return [
            f"expected  {_words(due.verdict, due.reason, due.not_before)}",
            f"got       {_words(got.verdict, got.reason, got.not_before)}",
            *(f"          {line}" for line in said),
        ]


def read_fixture(raw: object) -> Fixture:
    """Read a fixture out of what YAML or JSON gave, or raise InvalidFixture with every mistake."""
    root = Node(raw)
    told = root.fields(required=("policy", "sha256", "cases"), optional=("about",))
    fixture = Fixture(
        policy=told["policy"].text(),
        sha256=told["sha256"].text(),
        cases=tuple(map(_case, told["cases"].items(some=True))),
    )
    if root.problems:
        raise InvalidFixture(root.problems)
    return fixture


def try_case(document: Document, case: Case) -> Failure | None:
    """Decide a case; None when the decision is the expected one."""
    decision = decide(document, case.facts, now=case.now)
    got = Expected(decision.verdict, decision.reason, decision.not_before)
    return None if got == case.expected else Failure(case, decision)


def _case(node: Node) -> Case:
    told = node.fields(required=("name", "now", "facts", "expect"))
    now = told["now"].instant()
    return Case(told["name"].text(), _facts(told["facts"], now), now, _expected(told["expect"]))


def _expected(node: Node) -> Expected:
    told = node.fields(required=("verdict",), optional=("reason", "not_before"))
    verdict = told["verdict"].word(Verdict)
    reason, not_before = told["reason"], told["not_before"]
    if (verdict is Verdict.ALLOW) is not reason.is_absent():
        node.wrong("must name a reason with `defer` and `suppress`, and none with `allow`")
    if (verdict is Verdict.DEFER) is not_before.is_absent():
        node.wrong("must say not_before with `defer`, and with nothing else")
    return Expected(
        verdict,
        None if reason.is_absent() else reason.word(Reason),
        None if not_before.is_absent() else not_before.instant(),
    )


def _facts(node: Node, now: datetime) -> Facts:
    """Read facts as evidence holds them; what is left out is somebody in New York whom nothing speaks against."""
    plain = Facts(
        channel=Channel.SMS,
        category=Category.TRANSACTIONAL,
        country="US",
        zones=("America/New_York",),
        zone_source=ZoneSource.DECLARED,
        accepted_at=now,
        expires_at=None,
        route_available=True,
        tzdata_version=_HERE,
        phonenumbers_version=_HERE,
    )
    known = plain.as_evidence()
    node.fields(required=("category",), optional=[each.name for each in fields(Facts) if each.name != "category"])
    given: Mapping[str, Any] = node.value if isinstance(node.value, Mapping) else {}
    try:
        return facts_of({"facts": {**known, **given}})
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        node.wrong(f"cannot be read as evidence: {error}")
        return plain


def _words(verdict: Verdict, reason: Reason | None, not_before: datetime | None) -> str:
    return "  ".join(word for word in (verdict.value, reason, rfc3339_or_none(not_before)) if word)


def _told(answer: Answer) -> str:
    saw = ", ".join(f"{key}={value}" for key, value in answer.saw.items())
    return f"{answer.rule}: {_words(answer.verdict, answer.reason, answer.until)}{f'  ({saw})' if saw else ''}"
