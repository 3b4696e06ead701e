"""`daybook trace`: why somebody was, or was not, contacted, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.desk.policy.sentences import provenance_of, source_of_zone
from app.ground.db import transact
from app.ledger.trace import Trace, find_trace
from app.people.provenance import Act, covering
from cli.environment import Trouble, as_text, books, console
from policy.replay import answers_of
from policy.words import CATALOGUE, RULE_OF, AllowedBy, Verdict

STYLES = {
    "delivered": "bold green",
    "handed_off": "green",
    "submitted": "green",
    "in_flight": "green",
    "allow": "green",
    "failed": "bold red",
    "unknown": "bold yellow",
    "deferred": "yellow",
    "defer": "yellow",
    "suppressed": "magenta",
    "suppress": "magenta",
    "expired": "magenta",
    "cancelled": "magenta",
}


@click.command()
@click.argument("wanted", metavar="ID", type=click.UUID)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def trace(wanted: UUID, *, as_json: bool) -> None:
    """Tell the story of one event, by its id, an intent's or an attempt's. No personal value is shown."""
    with books():
        found = transact(lambda tx: find_trace(tx.session, wanted=wanted))
    if found is None:
        raise Trouble(f"no event, intent or attempt has the id {wanted}")
    if as_json:
        click.echo(as_text(_plain(found)))
    else:
        _Story(found).tell(console())


def _plain(found: Trace) -> dict[str, Any]:
    parts: dict[str, Any] = {"event": _row(found.event)}
    for field in fields(found):
        if field.name != "event":
            parts[field.name] = [_row(row) for row in getattr(found, field.name)]
    return parts


def _row(row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row, or an act
    values: dict[str, Any] = asdict(row) if isinstance(row, Act) else row._asdict()
    if values.get("reason") in CATALOGUE:
        values["meaning"], values["what_to_do"] = CATALOGUE[values["reason"]]
    return values


@dataclass(frozen=True, slots=True)
class _Story:
    """One trace, on its way to a terminal of any width."""

    found: Trace

    def tell(self, out: Console) -> None:
        """Print the event, then each intent with its history, decisions and attempts."""
        out.print(*self._event(), sep="\n")
        for intent in self.found.intents:
            out.print(*self._intent(intent), sep="\n")

    def _event(self) -> Iterator[RenderableType]:
        event = self.found.event
        yield Text.assemble(("event ", "bold"), str(event.id))
        policy = f"{event.policy_name}@{event.policy_version}" if event.policy_name else "none was in force"
        facts = {
            "what": f"{event.type} / {event.subject} / {event.recipient_ref}",
            "key": event.key if event.key_given else "",
            "tenant": f"{event.tenant}, by {event.source}",
            "text": f"{event.template_name}@{event.template_version} ({event.category})",
            "policy": policy,
            "accepted": _instant(event.accepted_at),
            "not before": _instant(event.not_before) if event.not_before else "",
            "ends": _instant(event.expires_at),
            "stake": f"{event.stake['count']} {event.stake['unit']}" if event.stake else "",
        }
        yield _facts(facts)

    def _intent(self, intent: Any) -> Iterator[RenderableType]:  # noqa: ANN401 - a row
        joined = f"  joined: it is of event {intent.event_id}" if intent.joined else ""
        yield Text.assemble(("\nintent ", "bold"), str(intent.id), f"  {intent.channel}  ", _word(intent.state), joined)
        if intent.close_requested_at is not None:
            asked = f"asked to close after the handoff: {intent.close_request}, {self._at(intent.close_requested_at)}"
            yield Padding(Text(asked, style="magenta"), (0, 0, 0, 2))
        yield self._history([t for t in self.found.transitions if t.intent_id == intent.id])
        yield self._decisions([d for d in self.found.decisions if d.intent_id == intent.id])
        for attempt in (a for a in self.found.attempts if a.intent_id == intent.id):
            yield self._attempt(attempt)
        for review in (r for r in self.found.reviews if r.intent_id == intent.id):
            settled = f"settled as {review.settled_as} {self._at(review.settled_at)}" if review.settled_at else "open"
            settled += f" by {review.settled_by} ({review.settled_reason})" if review.settled_by else ""
            yield Padding(Text(f"review {review.cause}, opened {self._at(review.opened_at)}: {settled}"), (0, 0, 0, 2))

    def _history(self, transitions: Sequence[Any]) -> RenderableType:
        table = _table("history", ("", "at (UTC)", "state", "cause", "reason"))
        for t in transitions:
            until = f"until {_instant(t.next_at)}" if t.next_at else ""
            table.add_row(str(t.n), self._at(t.at), _word(t.state), t.cause, _reason(t.reason, until))
        return _inset(table)

    def _decisions(self, decisions: Sequence[Any]) -> RenderableType:
        table = _table("decisions", ("at (UTC)", "moment", "verdict", "evidence"))
        for d in decisions:
            policy = f"{d.policy_name}@{d.policy_version} {d.sha256[:12]} ({d.owner})" if d.policy_name else "no policy in force"
            said = [_reason(d.reason, "")] if d.reason else []
            said += [Text(provenance_of(act, clock=_on)) for act in self._forbidden(d)]
            evidence = Group(*said, Text(policy), Text(_evidence(d.evidence), style="dim"))
            table.add_row(self._at(d.decided_at), d.moment, _word(d.verdict), evidence)
        return _inset(table)

    def _forbidden(self, decision: Any) -> list[Act]:  # noqa: ANN401 - a row
        named = covering(decision.evidence)
        return [act for act in self.found.suppressions if act.id in named]

    def _attempt(self, attempt: Any) -> RenderableType:  # noqa: ANN401 - a row
        remote_ids = [r.remote_id for r in self.found.remote_ids if r.attempt_id == attempt.id]
        head = Text.assemble(("attempt ", "bold"), f"{attempt.ordinal}  {attempt.id}  ", _word(attempt.state))
        facts = {
            "route": f"{attempt.route} ({attempt.carrier})" if attempt.route else "none",
            "follows": self._follows(attempt),
            "segments": f"{attempt.segment_count} ({attempt.encoding})" if attempt.segment_count else "",
            "ended with": f"{attempt.error_class} {attempt.error_code or ''}" if attempt.error_class else "",
            "due": self._due(attempt),
            "prepared": self._at(attempt.prepared_at) if attempt.prepared_at else "",
            "remote id": " ".join(remote_ids),
            "next check": f"{_instant(attempt.next_check_at)}, asked {attempt.check_count} times"
            if attempt.next_check_at
            else "",
            "horizon": _instant(attempt.horizon_at) if attempt.horizon_at else "",
            "silent until": f"{_instant(attempt.unheard_at)}, then ambiguity.waited" if attempt.unheard_at else "",
        }
        heard = self._heard(attempt)
        return Padding(Group(head, _facts(facts), *heard), (0, 0, 0, 2))

    def _follows(self, attempt: Any) -> str:  # noqa: ANN401 - a row
        """Name what let it follow the attempt before, and the version that says so."""
        if attempt.allowed_by is None:
            return ""
        before = (a for a in self.found.attempts if (a.intent_id, a.ordinal) == (attempt.intent_id, attempt.ordinal - 1))
        admitted = {a.decision_id for a in before}
        label = next((f" of {d.policy_name}@{d.policy_version}" for d in self.found.decisions if d.id in admitted), "")
        of_version = "" if attempt.allowed_by == AllowedBy.PERSON else label
        return f"attempt {attempt.ordinal - 1}, by {RULE_OF[attempt.allowed_by]}{of_version}"

    def _due(self, attempt: Any) -> str:  # noqa: ANN401 - a row
        if attempt.parked:
            return f"never: parked, {attempt.outbox_reason}"
        if attempt.due_at is None:
            return ""
        lease = f", leased until {_instant(attempt.leased_until)}" if attempt.leased_until else ""
        lost = f", leases lost: {attempt.lost_lease_count}" if attempt.lost_lease_count else ""
        return f"{_instant(attempt.due_at)}{lease}{lost}"

    def _heard(self, attempt: Any) -> Iterator[RenderableType]:  # noqa: ANN401 - a row
        observations = [o for o in self.found.observations if o.attempt_id == attempt.id]
        known = {r.remote_id for r in self.found.remote_ids if r.attempt_id == attempt.id}
        if observations:
            table = _table("heard", ("at (UTC)", "source", "said", "verdict", "with"))
            for o in observations:
                verdict = f"{o.judgement}, conflict" if o.conflict else o.judgement
                why = o.error_class or o.reason
                other_id = o.remote_id if o.remote_id not in known else None  # it stands above, or it is a conflict
                detail = " ".join(part for part in (o.error_code, other_id) if part and part != why)
                table.add_row(self._at(o.observed_at), o.source, _word(o.state), verdict, _reason(why, detail))
            yield _inset(table)
        receipts = [r for r in self.found.receipts if r.attempt_id == attempt.id]
        if receipts:
            table = _table("receipts", ("at (UTC)", "status", "repeated", "receipt"))
            for r in receipts:
                table.add_row(self._at(r.received_at), r.status, str(r.repeat_count), str(r.id))
            yield _inset(table)

    def _at(self, at: datetime) -> str:
        """Give a moment, its day only where that is not the day of acceptance."""
        utc, day = at.astimezone(UTC), self.found.event.accepted_at.astimezone(UTC).date()
        clock = f"{utc:%H:%M:%S}.{utc.microsecond // 1000:03}"
        return clock if utc.date() == day else f"{utc:%m-%d} {clock}"


def _evidence(evidence: Mapping[str, Any]) -> str:
    """Say in short what a decision saw: the person's country and zones, who had no objection, and who had an end or one."""
    facts = evidence.get("facts", {})
    zones = ", ".join(facts.get("zones", [])) or "no zone"
    answers = answers_of(evidence)
    content = [answer.rule for answer in answers if answer.verdict is Verdict.ALLOW and not answer.until]
    seen = {f"{facts.get('country') or 'no country'}, {zones} ({source_of_zone(facts)})": None}
    seen |= {f"no objection: {', '.join(content)}": None} if content else {}
    for answer in answers:
        words = [answer.verdict.value, answer.reason, f"until {_instant(answer.until)}" if answer.until else None]
        if answer.verdict is not Verdict.ALLOW or answer.until:
            seen[f"{answer.rule}: {' '.join(word for word in words if word)}"] = None
    return "\n".join(seen)


def _reason(reason: str | None, more: str) -> Text:
    """Write a reason with what the catalogue says about it."""
    meaning, what_to_do = CATALOGUE.get(reason or "", ("", ""))
    said = Text(reason or "", style="bold")
    said.append(f" {more}" if reason and more else more, style="not bold")
    if meaning:
        said.append(f"\n{meaning} → {what_to_do}", style="not bold dim")
    return said


def _word(state: str) -> Text:
    return Text(state, style=STYLES.get(state, ""))


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _on(at: datetime) -> str:
    return f"on {_instant(at)}"


def _facts(facts: Mapping[str, str]) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.items():
        if value:
            grid.add_row(name, value)
    return _inset(grid)


def _table(title: str, headings: Sequence[str]) -> Table:
    """Make a table whose last column takes what the terminal leaves."""
    table = Table(
        title=title, title_justify="left", title_style="dim italic", box=None, pad_edge=False, expand=True, header_style="dim"
    )
    for heading in headings[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(headings[-1], overflow="fold", ratio=1)
    return table


def _inset(what: RenderableType) -> RenderableType:
    return Padding(what, (0, 0, 0, 2))
