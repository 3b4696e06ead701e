"""`daybook policy explain`: the whole chain behind one contact, in words to read to a customer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

import click

from app.desk.policy.explain import Asked, Explained, Explanation, clocks_of
from app.desk.policy.explain import explain as find_explanation
from app.desk.policy.sentences import provenance_of
from app.ground.db import transact
from cli.environment import Trouble, as_text, books
from cli.policy_options import JSON
from policy.words import Verdict


@click.command()
@click.argument("wanted", metavar="ATTEMPT|INTENT", type=click.UUID)
@JSON
def explain(*, wanted: UUID, as_json: bool) -> None:
    """Say why somebody was, or was not, contacted: each version, each rule asked, what it saw and what it said.

    Times are told on the person's own clock where it is known, and in UTC. No address and no text is shown.
    """
    with books():
        found = transact(lambda tx: find_explanation(tx.session, wanted=wanted))
    if found is None:
        raise Trouble(f"no intent or attempt has the id {wanted}")
    click.echo(as_text(_plain(found)) if as_json else "\n".join(_story(found)))


def _plain(found: Explanation) -> dict[str, Any]:
    return {
        "intent": found.intent._asdict() | {"outcome": found.outcome},
        "attempt_id": found.attempt_id,
        "attempts": [row._asdict() | {"why": found.why(row)} for row in found.attempts],
        "decisions": [
            asdict(decision) | {"decided_at_local": clocks_of(decision.decided_at, decision.zones)}
            for decision in found.decisions
        ],
    }


def _story(found: Explanation) -> Iterator[str]:
    intent = found.intent
    yield f"{intent.channel} to {intent.recipient_ref}: {intent.type} / {intent.subject}, {intent.template} ({intent.category})"
    zones = found.decisions[0].zones if found.decisions else ()
    yield f"accepted   {_at(intent.accepted_at, zones)}"
    yield f"now        {intent.state}: {found.outcome}"
    if intent.next_at is not None:
        yield f"           not before {_at(intent.next_at, zones)}"
    for decision in found.decisions:
        yield ""
        yield from _decision(decision)
    for attempt in found.attempts:
        if why := found.why(attempt):
            yield f"\nAttempt {attempt.ordinal}: {why}"
        if attempt.held_at is not None:
            yield f"\nattempt {attempt.ordinal}: asked again at {_at(attempt.held_at, zones)}, and the rules said the same"


def _decision(decision: Explained) -> Iterator[str]:
    when = {"acceptance": "When the request came", "dispatch": "When it was due"}.get(decision.moment, decision.moment)
    yield f"{when}, {_at(decision.decided_at, decision.zones)}:"
    yield f"  {decision.sentence}"
    if decision.until is not None:
        words = "That holds until" if decision.verdict == Verdict.ALLOW else "Not before"
        yield f"  {words} {_at(decision.until, decision.zones)}."
    for ordinal in decision.admitted:
        yield f"  Attempt {ordinal} was given to the carrier under this decision."
    yield f"  {_rules(decision.policy)}"
    zones = ", ".join(decision.zones) or "not known"
    yield f"  Time zone: {zones} (from: {decision.zone_source})."
    for asked in decision.rules:
        yield from _asked(asked, decision)


def _rules(policy: Mapping[str, Any] | None) -> str:
    if policy is None:
        return "No version of our rules was in force."
    until = _at(policy["effective_until"], ()) if policy["effective_until"] else "another one starts"
    reviewed = f"reviewed by {policy['reviewer']}" if policy["reviewer"] else "a sample that nobody has reviewed"
    return (
        f"The rules: {policy['policy']}, owner {policy['owner']}, {reviewed}, in force from "
        f"{_at(policy['effective_from'], ())} until {until}, sha256 {policy['sha256']}."
    )


def _asked(asked: Asked, decision: Explained) -> Iterator[str]:
    zones = decision.zones
    later = "" if asked.asked_at == decision.decided_at else f", asked about {_at(asked.asked_at, zones)}"
    until = ""
    if asked.until is not None:
        until = f" {'Until' if asked.verdict == Verdict.ALLOW else 'Not before'} {_at(asked.until, zones)}."
    yield f"  - {asked.question}  [{asked.rule}{later}]"
    yield f"      {asked.sentence}{until}"
    for act in asked.suppressions:
        yield f"      {provenance_of(act, clock=lambda at: _at(at, zones))}"
    seen = "; ".join(f"{key.replace('_', ' ')}: {_value(value, zones)}" for key, value in asked.saw.items())
    if seen:
        yield f"      seen: {seen}"


def _value(value: object, zones: Sequence[str]) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {_value(part, zones)}" for key, part in value.items())
    if isinstance(value, list):
        return " + ".join(_value(part, zones) for part in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        try:
            return _at(datetime.fromisoformat(value), zones) if value.endswith("Z") and "T" in value else value
        except ValueError:
            return value
    return "none" if value is None else str(value)


def _at(at: datetime, zones: Sequence[str]) -> str:
    *local, utc = clocks_of(at, zones)
    return f"{', '.join(local)} ({utc})" if local else utc
