"""Accept events: one query that reads what the decisions need, one that writes everything they cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import errors
from sqlalchemy.orm import Session

from app.ground.db import Raced, rows, run_together
from app.ground.ids import new_id
from app.ground.keys import KeyedHash, keyed_hash, same_bytes
from app.ledger.decide import Wish
from app.ledger.open import ORDER, Entries, Opening, open_intent
from app.ledger.reached import Reached, left_open, reach
from app.ledger.request import NewEvent, Problem
from app.ledger.surroundings import Surroundings, grouped, statements, surroundings_of
from app.ledger.view import EventView, IntentView, public_state, read_events
from app.people.contacts import Number, address_hash
from app.people.persons import STORED
from app.people.vault import VaultKey, new_vault_key, open_vault_key
from app.render import CannotRender, body_for, render
from models.base import Base
from models.ledger import Event, Joining
from models.people import Contact, PersonKey
from policy.states import PublicState
from policy.words import Category, Channel

KNOWN_EVENTS = """
SELECT id, key_given, key, content_hash, hash_key_id FROM event
WHERE tenant_id = %(tenant)s AND (key_given, key) IN (SELECT * FROM unnest(%(givens)s::boolean[], %(keys)s::text[]))
"""

TEMPLATES = """
SELECT name, version, category, variables, channels, bodies, default_locale,
       version = max(version) OVER (PARTITION BY name) AS published
FROM template_version WHERE tenant_id = %(tenant)s AND name = ANY(%(names)s::text[])
"""

PERSON_KEYS = """
SELECT id, name, wrapped_key FROM person_key
WHERE tenant_id = %(tenant)s AND kind = 'person' AND name = ANY(%(refs)s::text[])
"""

CONTACTS = """
SELECT id, recipient_ref, channel, address_hash FROM contact
WHERE tenant_id = %(tenant)s AND (recipient_ref, channel, address_hash) IN (
    SELECT * FROM unnest(%(refs)s::text[], %(channels)s::text[], %(hashes)s::bytea[])
)
"""

HOLDERS = """
SELECT id, business_key, channel, state, reason, next_at FROM intent
WHERE tenant_id = %(tenant)s AND holds_key AND business_key = ANY(%(keys)s::text[])
"""

# Whoever closes an intent locks it; an event that joins it must not slip past a close that then
# finds nobody to promote.
KEEP_HOLDERS = "SELECT id FROM intent WHERE id = ANY(%(ids)s::uuid[]) AND holds_key ORDER BY id FOR SHARE"

# Without a policy in force nothing names a maximum age.
DEFAULT_MAX_AGE: Final = timedelta(hours=24)
WRITE_ORDER: Final[tuple[tuple[type[Base], str], ...]] = (
    (PersonKey, "name"),
    (Contact, "id"),
    (Event, "key"),
    *ORDER,
    (Joining, "event_id"),
)


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that could not be accepted; nothing was written for it."""

    problems: tuple[Problem, ...]


Acceptance = EventView | Refused


@dataclass(slots=True)
class _Known:
    """What the read found, and what this page adds to it as it goes."""

    tenant_id: UUID
    source: str
    now: datetime
    around: Surroundings
    events: dict[tuple[bool, str], Any]
    templates: dict[str, list[Any]]
    keys: dict[str, VaultKey]
    erased: set[str]
    contacts: dict[tuple[str, str, bytes], UUID]
    stored: dict[str, list[Any]]
    holders: dict[tuple[str, str], IntentView]
    entries: Entries = field(default_factory=Entries)
    fresh: dict[tuple[bool, str], EventView] = field(default_factory=dict)
    joined: set[UUID] = field(default_factory=set)
    opened: set[UUID] = field(default_factory=set)


def accept(session: Session, requests: Sequence[NewEvent], *, tenant_id: UUID, source: str, now: datetime) -> list[Acceptance]:
    """Accept a page of requests of one tenant, in order, each on its own; Raced when another was first."""
    known = _read(session, requests, tenant_id=tenant_id, source=source, now=now)
    results = [_accept_one(known, request) for request in requests]
    joined = known.joined - known.opened
    if joined:
        kept = rows(session, KEEP_HOLDERS, ids=sorted(joined))
        if len(kept) < len(joined):
            raise Raced("an intent closed while an event was joining it")
    if known.entries.by_table:
        try:
            run_together(session, known.entries.statements(WRITE_ORDER))
        except errors.UniqueViolation as error:
            raise Raced("another acceptance wrote this key, person or contact first") from error
    return _with_duplicates(session, results, tenant_id=tenant_id)


def _read(session: Session, requests: Sequence[NewEvent], *, tenant_id: UUID, source: str, now: datetime) -> _Known:
    named = [(r.recipient_ref, address_hash(Channel.SMS, r.number.e164).digest) for r in requests if r.number is not None]
    contacts_of = {"refs": [n[0] for n in named], "channels": [Channel.SMS.value] * len(named), "hashes": [n[1] for n in named]}
    gates, complete, asked = [(tenant_id, n[1]) for n in named], len(named) == len(requests), left_open(requests)
    params: dict[str, Any] = {"tenant": tenant_id}
    found = run_together(
        session,
        [
            (KNOWN_EVENTS, params | {"givens": [r.given_key is not None for r in requests], "keys": [r.key for r in requests]}),
            (TEMPLATES, params | {"names": sorted({r.template_name for r in requests})}),
            *([(STORED, params | {"refs": asked})] if asked else []),  # before the keys: each address has its key then
            (PERSON_KEYS, params | {"refs": sorted({r.recipient_ref for r in requests})}),
            (CONTACTS, params | contacts_of),
            (HOLDERS, params | {"keys": sorted({r.business_key for r in requests})}),
            *(statements([tenant_id], gates, now=now) if complete else []),
        ],
    )
    stored = found.pop(2) if asked else []
    events, templates, keys, contacts, holders, *around = found
    if not complete:  # the gates of stored addresses are known by now
        gates += [(tenant_id, bytes(s.address_hash)) for s in stored if s.id is not None]
        around = run_together(session, statements([tenant_id], gates, now=now))
    by_name: dict[str, list[Any]] = {}
    for template in templates:
        by_name.setdefault(template.name, []).append(template)
    return _Known(
        tenant_id=tenant_id,
        source=source,
        now=now,
        around=surroundings_of(session, around),
        events={(e.key_given, e.key): e for e in events},
        templates=by_name,
        keys={k.name: open_vault_key(k.id, k.wrapped_key) for k in keys if k.wrapped_key is not None},
        erased={k.name for k in keys if k.wrapped_key is None},
        contacts={(c.recipient_ref, c.channel, bytes(c.address_hash)): c.id for c in contacts},
        stored=grouped(stored, lambda s: s.ref),
        holders={
            (h.business_key, h.channel): IntentView(h.id, h.channel, public_state(h.state), h.reason, h.next_at, joined=True)
            for h in holders
        },
    )


def _accept_one(known: _Known, request: NewEvent) -> EventView | Refused | UUID:
    """Accept one request; a UUID names the event that it repeats, to be read when all is written."""
    name = (request.given_key is not None, request.key)
    digest = keyed_hash("content", request.content)
    before = known.events.get(name)
    if before is not None:  # compared before every check that time can change
        ours = keyed_hash("content", request.content, key_id=before.hash_key_id)
        if not same_bytes(bytes(before.content_hash), ours.digest):
            return Refused((Problem("key_reused", "this key was used with other content", "/key"),))
        fresh = known.fresh.get(name)
        return replace(fresh, duplicate=True) if fresh else UUID(str(before.id))
    template = _template_of(known, request)
    if isinstance(template, Problem):
        return Refused((template,))
    problems, reached = _problems_of(known, request, template), _reached(known, request)
    if problems or isinstance(reached, Problem):
        return Refused((*problems, reached) if isinstance(reached, Problem) else tuple(problems))
    text = _text_of(request, reached, template)
    if isinstance(text, Problem):
        return Refused((text,))
    view = _write_event(known, request, reached, template, digest, text)
    known.fresh[name] = view
    known.events[name] = _Fresh(view.event_id, digest.digest, digest.key_id)
    return view


def _text_of(request: NewEvent, reached: Reached, template: Any) -> str | Problem:  # noqa: ANN401 - a row of TEMPLATES
    body = body_for(template.bodies, locale=reached.locale, default_locale=template.default_locale)
    try:
        text = render(body, request.data)
    except CannotRender as error:
        return Problem("cannot_render", str(error), "/data")
    return text if text.strip() else Problem("empty_text", "the template gives an empty text with this data", "/data")


@dataclass(frozen=True, slots=True)
class _Fresh:
    id: UUID
    content_hash: bytes
    hash_key_id: str


def _template_of(known: _Known, request: NewEvent) -> Any:  # noqa: ANN401 - a row of TEMPLATES, or a Problem
    for template in known.templates.get(request.template_name, ()):
        if template.version == request.template_version or (request.template_version is None and template.published):
            return template
    return Problem("unknown_template", "no such template is published", "/template")


def _problems_of(known: _Known, request: NewEvent, template: Any) -> list[Problem]:  # noqa: ANN401 - a row of TEMPLATES
    problems = []
    if request.category not in {None, template.category}:
        problems.append(Problem("category_mismatch", f"the template's category is {template.category}", "/category"))
    if template.category == Category.OTP:
        problems.append(Problem("category_closed", "events of category otp are not accepted yet", "/template"))
    problems += [
        Problem("channel_mismatch", f"the template has no text for {channel}", "/channels")
        for channel in request.channels
        if channel not in template.channels
    ]
    problems += [
        Problem("missing_variable", f"the template needs {variable!r}", f"/data/{variable}")
        for variable in sorted(set(template.variables) - set(request.data))
    ]
    if request.expires_at is not None and request.expires_at <= known.now:
        problems.append(Problem("already_expired", "lies in the past", "/expires_at"))
    if request.not_before is not None and request.expires_at is not None and request.not_before >= request.expires_at:
        problems.append(Problem("already_expired", "ends before it may begin", "/not_before"))
    return problems


def _reached(known: _Known, request: NewEvent) -> Reached | Problem:
    if request.recipient_ref in known.erased:
        return Problem("recipient_erased", "this recipient was erased", "/recipient/ref")
    return reach(request, known.stored.get(request.recipient_ref, ()), known.keys)


def _write_event(
    known: _Known,
    request: NewEvent,
    reached: Reached,
    template: Any,  # noqa: ANN401 - a row of TEMPLATES
    digest: KeyedHash,
    text: str,
) -> EventView:
    policy = known.around.policies.get(known.tenant_id)
    rules = policy.document.categories.get(Category(template.category)) if policy else None
    oldest = known.now + (rules.max_age if rules else DEFAULT_MAX_AGE)
    view = EventView(
        event_id=new_id(),
        key=request.key,
        template=f"{template.name}@{template.version}",
        category=template.category,
        policy=policy.label if policy else None,
        intents=(),
        accepted_at=known.now,
        expires_at=min(request.expires_at, oldest) if request.expires_at else oldest,
        type=request.type,
        subject=request.subject,
        recipient_ref=request.recipient_ref,
    )
    key = _person_key(known, request.recipient_ref)
    known.entries.add(
        Event,
        id=view.event_id,
        tenant_id=known.tenant_id,
        key=request.key,
        key_given=request.given_key is not None,
        business_key=request.business_key,
        content_hash=digest.digest,
        hash_key_id=digest.key_id,
        type=request.type,
        subject=request.subject,
        recipient_ref=request.recipient_ref,
        category=template.category,
        template_name=template.name,
        template_version=template.version,
        policy_version_id=policy.id if policy else None,
        person_key_id=key.id,
        payload=key.seal(
            {
                "data": dict(request.data),
                "sms": reached.number.e164,
                "locale": reached.locale,
                "time_zone": reached.time_zone,
                "recipient_version": reached.recipient_version,
            }
        ),
        expires_at=view.expires_at,
        not_before=request.not_before,
        metadata=dict(request.metadata),
        stake=dict(request.stake) if request.stake else None,
        source=known.source,
        accepted_at=known.now,
    )
    intents = (_wish(known, request, reached, view, channel, key, text) for channel in request.channels)
    return replace(view, intents=tuple(intents))


def _wish(
    known: _Known, request: NewEvent, reached: Reached, view: EventView, channel: Channel, key: VaultKey, text: str
) -> IntentView:
    """Open an intent on one channel, or join the one that holds the business key."""
    contact_id, address = reached.contact or _contact(known, request.recipient_ref, reached.number, channel, key)
    holder = known.holders.get((request.business_key, channel))
    if holder is not None:
        known.entries.add(
            Joining,
            event_id=view.event_id,
            channel=channel,
            intent_id=holder.intent_id,
            tenant_id=known.tenant_id,
            contact_id=contact_id,
            joined_at=known.now,
        )
        known.joined.add(holder.intent_id)
        return holder
    wish = Wish(
        tenant_id=known.tenant_id,
        business_key=request.business_key,
        channel=channel,
        category=Category(view.category),
        gate_hash=address.digest,
        country=reached.number.country,
        number_zones=reached.number.zones,
        declared_zone=reached.time_zone,
        recipient_version=reached.recipient_version,
        accepted_at=known.now,
        expires_at=view.expires_at,
        not_before=request.not_before,
        segment_count=None,  # counted when it is opened
        number_type=reached.number.type,
        subdivisions=reached.number.subdivisions,
    )
    opening = Opening(view.event_id, request.recipient_ref, contact_id, wish, text)
    opened = open_intent(known.entries, opening, known.around, now=known.now)
    if opened.state in {PublicState.QUEUED, PublicState.DEFERRED}:
        known.holders[(request.business_key, channel)] = replace(opened, joined=True)
        known.opened.add(opened.intent_id)
    return opened


def _person_key(known: _Known, ref: str) -> VaultKey:
    key = known.keys.get(ref)
    if key is None:
        key, wrapped = new_vault_key(new_id())
        known.keys[ref] = key
        known.entries.add(
            PersonKey,
            id=key.id,
            tenant_id=known.tenant_id,
            kind="person",
            name=ref,
            wrapped_key=wrapped,
            created_at=known.now,
            destroyed_at=None,
        )
    return key


def _contact(known: _Known, ref: str, number: Number, channel: Channel, key: VaultKey) -> tuple[UUID, KeyedHash]:
    address = address_hash(channel, number.e164)
    name = (ref, channel.value, address.digest)
    contact_id = known.contacts.get(name)
    if contact_id is None:
        contact_id = known.contacts[name] = new_id()
        known.entries.add(
            Contact,
            id=contact_id,
            tenant_id=known.tenant_id,
            recipient_ref=ref,
            channel=channel,
            address_hash=address.digest,
            hash_key_id=address.key_id,
            sealed_address=key.seal(number.e164),
            person_key_id=key.id,
            country=number.country,
            zones=list(number.zones),
            created_at=known.now,
        )
    return contact_id, address


def _with_duplicates(session: Session, results: Sequence[Acceptance | UUID], *, tenant_id: UUID) -> list[Acceptance]:
    repeated = [result for result in results if isinstance(result, UUID)]
    views = read_events(session, tenant_id=tenant_id, event_ids=repeated) if repeated else {}
    return [replace(views[result], duplicate=True) if isinstance(result, UUID) else result for result in results]
