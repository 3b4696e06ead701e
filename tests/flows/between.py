"""One text on its way, and what happens to its world before it is claimed, or between its lease and prepare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.policy.publish import publish
from app.ground.db import rows
from app.people.consents import NewConsent, record_consents
from app.people.contacts import address_hash, read_number
from app.people.evidence import Kept
from app.people.persons import Addressee, NotKept
from app.people.preferences import NewPreference, record_preferences
from app.people.suppress import suppress
from policy.categories import Basis
from policy.document import Document, parse
from policy.replay import facts_of, replay
from policy.words import Category
from tests.making import (
    ANNA,
    NOON,
    House,
    Standing,
    attempt_of,
    claim,
    intent_of,
    make_house,
    make_queued,
    prepare_all,
    sample,
    transitions_of,
)

SECOND: Final = timedelta(seconds=1)
TURN: Final = NOON + timedelta(minutes=2)
"""When it happens. The text was accepted at noon."""
JUST_BEFORE: Final = TURN - 20 * SECOND
JUST_AFTER: Final = TURN + 20 * SECOND
LOOKED_AGAIN: Final = TURN + 30 * SECOND
CATEGORY: Final = Category.TRANSACTIONAL
ABOUT: Final = Addressee("m-1", "sms", read_number(ANNA))
ACTOR: Final = "key:test"


class Place(StrEnum):
    """Where on the way it happens."""

    CLAIM = "before the claim"
    PREPARE = "between lease and prepare"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the text, and what the decision that counts had seen."""

    state: str
    reason: str | None
    next_at: datetime | None
    version: str
    saw: frozenset[str]
    basis: Basis | None


@dataclass
class Story:
    """One text for Anna, who has agreed to such texts, and what was told of her by names of our own."""

    session: Session
    house: House
    basis: Basis
    told: dict[str, str] = field(default_factory=dict)
    """The ids of the rows that evidence may name."""
    put_back: str | None = None
    """Why prepare sent it back to be decided again."""
    text: Standing | None = None

    @property
    def standing(self) -> Standing:
        """Give the text, once it was accepted."""
        assert self.text is not None
        return self.text

    # What may happen.

    def consent(self, name: str, act: str, *, kind: str = "express", now: datetime = TURN) -> None:
        """Let Anna agree, or withdraw it."""
        new = NewConsent(ABOUT, CATEGORY, act, kind, None, None, "w-1" if act == "grant" else None, "form")
        self._keep(name, record_consents(self.session, [new], tenant_id=self.house.tenant_id, actor=ACTOR, now=now))

    def refuse(self, name: str) -> None:
        """Let Anna choose not to get such texts."""
        new = NewPreference(ABOUT, CATEGORY, wanted=False, at=None)
        self._keep(name, record_preferences(self.session, [new], tenant_id=self.house.tenant_id, actor=ACTOR, now=TURN))

    def stop(self, name: str) -> None:
        """Let Anna write STOP."""
        anna = address_hash("sms", ANNA).digest
        tenant_id = self.house.tenant_id
        kept = suppress(
            self.session, tenant_id=tenant_id, channel="sms", address_hash=anna, source="keyword", cause_id=None, now=TURN
        )
        self.told[name] = str(kept)

    def publish_next(self, raw: Mapping[str, Any]) -> None:
        """Publish a version that starts at the turn, two minutes before."""
        next_one = {**raw, "version": "next", "effective_from": TURN.isoformat()}
        publish(self.session, tenant_id=self.house.tenant_id, raw=next_one, actor="ann", now=NOON)

    def _keep(self, name: str, kept: list[Kept | NotKept]) -> None:
        (only,) = kept
        assert isinstance(only, Kept), only
        self.told[name] = str(only.id)

    # The way.

    def go(self, *, now: datetime) -> str:
        """Take it as far as it comes at this moment: claim it, and prepare what was leased."""
        return self.prepare(now=now) if self.claim(now=now) else "not claimed"

    def claim(self, *, now: datetime) -> bool:
        """Claim what is due; say whether it was leased."""
        pages = [page for page in claim(self.session, self.house, now=now) if self.standing.attempt_id in page.attempt_ids]
        if not pages:
            return False
        before = self.standing
        self.text = Standing(before.house, before.event_id, before.intent_id, before.attempt_id, pages[0].lease)
        return True

    def prepare(self, *, now: datetime) -> str:
        """Prepare it under its lease: handed off, or the reason why it goes back."""
        prepared = prepare_all(self.session, self.standing, now=now)
        assert not prepared.parked
        if prepared.handoffs:
            return "handed_off"
        self.put_back = str(prepared.put_back[self.standing.attempt_id])
        return self.put_back

    # What the books say.

    def outcome(self) -> Outcome:
        """Read what became of it, and the decision that made it so; replayed, it must say the same."""
        attempt, intent = attempt_of(self.session, self.standing), intent_of(self.session, self.standing)
        went = attempt.state == "prepared"
        decision = self.decision(attempt.decision_id if went else self._cause())
        document = self._document(decision.policy_version_id)
        again = replay(document, decision.evidence, now=decision.decided_at)
        assert (again.verdict, again.reason) == (decision.verdict, decision.reason)
        assert decision.evidence["policy"]["sha256"] == document.sha256
        facts = facts_of(decision.evidence)
        named = {c.id for c in facts.consents} | {p.id for p in facts.preferences} | {s.id for s in facts.suppressions}
        return Outcome(
            state="handed_off" if went else intent.state,
            reason=None if went else intent.reason,
            next_at=None if went else intent.next_at,
            version=document.version,
            saw=frozenset(self._named(each) for each in named),
            basis=facts.basis,
        )

    def decision(self, decision_id: UUID) -> Any:
        """Read one decision."""
        return rows(self.session, "SELECT * FROM decision WHERE id = %(id)s", id=decision_id)[0]

    def _cause(self) -> UUID:
        assert transitions_of(self.session, self.standing)[-1][1] != "queued", "nothing was decided about it since acceptance"
        last = "SELECT cause_id FROM transition WHERE intent_id = %(id)s ORDER BY n DESC LIMIT 1"
        cause_id: UUID = rows(self.session, last, id=self.standing.intent_id)[0].cause_id
        return cause_id

    def _document(self, version_id: UUID) -> Document:
        return parse(rows(self.session, "SELECT document FROM policy_version WHERE id = %(id)s", id=version_id)[0].document)

    def _named(self, row_id: str) -> str:
        return next(name for name, told in self.told.items() if told == row_id)


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens on the way, and what must be so from the start that it can."""

    turn: Callable[[Story], None] = lambda _: None
    """At the turn. Time itself may be enough."""
    ahead: Callable[[Story], None] = lambda _: None
    """Before the text is accepted."""
    planned: Callable[[Story], None] = lambda _: None
    """After it was accepted, and before anybody claims it."""
    rules: Mapping[str, object] = field(default_factory=dict)
    """Of the text's category in the first version."""
    request: Mapping[str, Any] = field(default_factory=dict)


def rules_of(basis: Basis, **changes: object) -> dict[str, Any]:
    """Give the sample policy, with a category that needs an express consent and goes by a basis."""
    return sample(**({"consent": ["express"], "basis": basis.value} | changes)) | {"version": "first"}


def tell(session: Session, happening: Happening, place: Place, basis: Basis) -> Story:
    """Accept a text for Anna and take it past what happens, up to one look later."""
    house = make_house(session, policy=rules_of(basis, **happening.rules))
    story = Story(session, house, basis)
    story.consent("granted", "grant", now=NOON - timedelta(days=1))
    happening.ahead(story)
    story.text = make_queued(session, house, **happening.request)
    happening.planned(story)
    if place is Place.PREPARE:
        assert story.claim(now=JUST_BEFORE), "it must be leased, else nothing happens between lease and prepare"
    happening.turn(story)
    went = story.prepare(now=JUST_AFTER) if place is Place.PREPARE else story.go(now=JUST_AFTER)
    if went != "handed_off":
        story.go(now=LOOKED_AGAIN)
    return story
