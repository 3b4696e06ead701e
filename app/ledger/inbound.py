"""What people write to numbers of ours: keep each text once, then do what it asks for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.orm import Session

from app.carriers.base import Call, ReadInbound
from app.carriers.registry import open_carrier
from app.ground.db import insertion, rows, run_together
from app.ground.ids import new_id
from app.ledger.confirm import Confirmation, confirm
from app.ledger.receipts import plain_call
from app.ledger.routes import Route
from app.people.contacts import InvalidNumber, address_hash, read_number
from app.people.holding import holding_key
from app.people.suppress import Standing, lift, standing, suppress
from app.people.vault import VaultDamaged, VaultKey, VaultKeyMissing, open_vault_key
from models.work import InboundRaw
from policy.keywords import Match, Scope, Tier, Word, match
from policy.words import Channel, SuppressedBy

# Who has, or had, this address; the newest last.
PEOPLE = """
SELECT c.recipient_ref, k.id AS key_id, k.wrapped_key FROM contact c JOIN person_key k ON k.id = c.person_key_id
WHERE c.tenant_id = %(tenant)s AND c.address_hash = %(hash)s AND c.channel = %(channel)s ORDER BY c.created_at, c.id
"""

# The carrier repeats calls until we answer well: the first is kept, the others are counted.
KEEP = """
INSERT INTO inbound (id, tenant_id, route_id, channel, dedupe_key, address_hash, hash_key_id, refs, person_key_id, sealed_text,
                     word, tier, scope, source, answered, review, status, repeat_count, received_at)
VALUES (%(id)s, %(tenant)s, %(route)s, %(channel)s, %(dedupe)s, %(hash)s, %(hash_key)s, %(refs)s, %(key)s, %(sealed)s,
        %(word)s, %(tier)s, %(scope)s, %(source)s, %(answered)s, %(review)s, %(status)s, 0, %(now)s)
ON CONFLICT (route_id, dedupe_key) DO UPDATE SET repeat_count = inbound.repeat_count + 1
RETURNING id, status, repeat_count
"""

# Locked first: handler, repetition and sweep alike act on what nobody has acted on.
TO_ACT_ON = """
SELECT n.id, n.tenant_id, n.route_id, n.channel, n.address_hash, n.refs, n.sealed_text, n.word, n.scope, n.source, n.answered,
       k.id AS key_id, k.wrapped_key
FROM inbound n JOIN person_key k ON k.id = n.person_key_id
WHERE n.id = %(id)s AND n.status = 'waiting' FOR UPDATE OF n
"""

ACTED = "UPDATE inbound SET status = 'acted', acted_at = %(now)s, confirmation = %(confirmation)s WHERE id = %(id)s"

WAITING = """
SELECT id, route_id FROM inbound WHERE status = 'waiting' AND received_at <= %(before)s ORDER BY received_at, id LIMIT %(limit)s
"""

# What a person's own word brings back. Whose number it never was, who complained, what the law or an operator ordered: not these.
LIFTED: Final = frozenset({SuppressedBy.KEYWORD, SuppressedBy.CARRIER})
TEXT_REFUSED: Final = "inbound_not_authentic"
"""Why a call is kept apart that hands over a text and does not verify."""
UNREADABLE: Final = Match(Word.NONE, review=True)


@dataclass(frozen=True, slots=True)
class Kept:
    """A text as it is kept."""

    id: UUID
    word: str
    status: str
    """waiting, acted or quarantined."""
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Acted:
    """What was done about a text."""

    word: str
    confirmation: Confirmation | None = None
    lifted: Sequence[Standing] = ()

    @property
    def carrier_may_block(self) -> bool:
        """Say whether a carrier had blocked this person, and may go on doing so: only it can end that."""
        return any(each.source == SuppressedBy.CARRIER for each in self.lifted)


def keep_text(session: Session, route: Route, call: Call, *, now: datetime) -> Kept:
    """Keep a verified call once: as the text that its carrier reads in it, or quarantined."""
    try:
        read = open_carrier(route.settings).read_inbound(call)
    except (KeyError, ValueError):
        digest = hashlib.sha256(call.query + b"\0" + call.body).hexdigest()
        return keep_unreadable(session, route, call, dedupe_key=f"unreadable/{digest}", now=now)
    return keep_inbound(session, route, call, read, now=now)


def keep_inbound(session: Session, route: Route, call: Call, read: ReadInbound, *, now: datetime) -> Kept:
    """Keep a verified text once, with whose it may be, sealed under that person's key where it can be nobody else's."""
    number = _e164(read.address)
    digest = address_hash(Channel.SMS, number) if number is not None else None
    people = _people(session, route, digest.digest) if digest is not None else {}
    only = next(iter(people.values())) if len(people) == 1 else None
    key = only or holding_key(session, tenant_id=route.tenant_id, now=now)
    word, status = _match(read), "waiting"
    if digest is None and word.word is not Word.NONE:  # a STOP that names nobody whom we could leave alone
        word, status = replace(word, review=True), "quarantined"
    row: dict[str, object] = {
        "hash": digest.digest if digest else None,
        "hash_key": digest.key_id if digest else None,
        "refs": list(people),
        "sealed": key.seal({"from": number or read.address, "text": read.text}),
        "answered": read.answered,
        "status": status,
    }
    return _keep(session, route, call, row, key=key, dedupe_key=read.dedupe_key, word=word, now=now)


def keep_unreadable(session: Session, route: Route, call: Call, *, dedupe_key: str, now: datetime) -> Kept:
    """Quarantine a verified call that cannot be used: the raw call stays, nothing is done."""
    key = holding_key(session, tenant_id=route.tenant_id, now=now)
    row: dict[str, object] = {
        "hash": None,
        "hash_key": None,
        "refs": [],
        "sealed": key.seal({"from": None, "text": None}),
        "answered": False,
        "status": "quarantined",
    }
    return _keep(session, route, call, row, key=key, dedupe_key=dedupe_key, word=UNREADABLE, now=now)


def _keep(
    session: Session,
    route: Route,
    call: Call,
    row: Mapping[str, object],
    *,
    key: VaultKey,
    dedupe_key: str,
    word: Match,
    now: datetime,
) -> Kept:
    common = {"id": new_id(), "tenant": route.tenant_id, "route": route.id, "channel": Channel.SMS, "dedupe": dedupe_key}
    said = {"word": word.word, "tier": word.tier, "scope": word.scope, "source": word.source, "review": word.review}
    kept = rows(session, KEEP, **common, **said, **row, key=key.id, now=now)[0]
    duplicate = kept.repeat_count > 0
    if not duplicate:
        raw = {
            "inbound_id": kept.id,
            "tenant_id": route.tenant_id,
            "person_key_id": key.id,
            "sealed_call": key.seal(plain_call(call)),
            "received_at": now,
        }
        run_together(session, [insertion(InboundRaw, [raw])])
    return Kept(kept.id, word.word, kept.status, duplicate)


def act_on(session: Session, inbound_id: UUID, *, route: Route, now: datetime) -> Acted | None:
    """Do what a kept text asks for, once; None when that is done already.

    An opt-out is kept, and its confirmation accepted, in this one transaction: of many STOPs at once the
    first to have the person's gate is confirmed, and no crash parts the two.
    """
    found = rows(session, TO_ACT_ON, id=inbound_id)
    if not found:
        return None
    told = found[0]
    match told.word:
        case Word.OPT_OUT:
            acted = Acted(told.word, confirmation=_opt_out(session, told, route=route, now=now))
        case Word.OPT_IN:
            acted = Acted(told.word, lifted=_opt_in(session, told, now=now))
        case _:
            acted = Acted(told.word)
    rows(session, ACTED, id=inbound_id, confirmation=acted.confirmation, now=now)
    return acted


def _opt_out(session: Session, told: Any, *, route: Route, now: datetime) -> Confirmation:  # noqa: ANN401 - a row of TO_ACT_ON
    who = {"tenant_id": told.tenant_id, "address_hash": bytes(told.address_hash)}
    everything = told.scope == Scope.ALL
    suppress(session, **who, channel=told.channel, source=told.source, cause_id=told.id, everything=everything, now=now)
    ours = next((each.id for each in standing(session, **who) if each.cause_id == told.id), None)
    if ours is None:  # the same was said before
        return Confirmation.REPEATED
    if route.confirms_opt_out and told.answered:
        return Confirmation.CARRIER
    if not told.refs or told.wrapped_key is None:
        return Confirmation.NOBODY
    try:
        number = open_vault_key(told.key_id, told.wrapped_key).open(bytes(told.sealed_text))["from"]
        return confirm(
            session, tenant_id=told.tenant_id, inbound_id=told.id, suppression_id=ours, ref=told.refs[-1], number=number, now=now
        )
    except (VaultKeyMissing, VaultDamaged):
        return Confirmation.REFUSED  # whom to tell cannot be read any more; they are left alone all the same


def _opt_in(session: Session, told: Any, *, now: datetime) -> list[Standing]:  # noqa: ANN401 - a row of TO_ACT_ON
    who = {"tenant_id": told.tenant_id, "address_hash": bytes(told.address_hash)}
    ours = [each.id for each in standing(session, **who) if each.source in LIFTED]
    return lift(
        session, **who, channel=told.channel, source=SuppressedBy.KEYWORD, cause_id=told.id, lifts=frozenset(ours), now=now
    )


def _match(read: ReadInbound) -> Match:
    """Read the text. What the carrier took for an opt-out is one: it blocks that person already."""
    said = match(read.text)
    if read.opts_out and said.word is not Word.OPT_OUT:
        return Match(Word.OPT_OUT, Tier.CARRIER, Scope.SENDER, review=said.review)
    return said


def _people(session: Session, route: Route, digest: bytes) -> dict[str, VaultKey | None]:
    """Find whose address this is or was: ref -> their open key, None for the erased."""
    found = rows(session, PEOPLE, tenant=route.tenant_id, hash=digest, channel=Channel.SMS)
    return {row.recipient_ref: open_vault_key(row.key_id, row.wrapped_key) if row.wrapped_key else None for row in found}


def _e164(address: str) -> str | None:
    """Write whose text it is as our contacts are written; None for a name in place of a number."""
    digits = address.strip().lstrip("+").removeprefix("00")
    if not (digits.isascii() and digits.isdigit()):
        return None
    try:
        return read_number(f"+{digits}").e164
    except InvalidNumber:  # a carrier knows numbers that no plan has
        return f"+{digits}"
