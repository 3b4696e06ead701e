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
from app.ledger import occasion
from app.ledger.decide import Wish
from app.ledger.open import ORDER, Entries, Opening, open_intent
from app.ledger.reached import Reached, addressee, left_open, reach
from app.ledger.request import NewEvent, Problem
from app.ledger.surroundings import Surroundings, statements, surroundings_of
from app.ledger.view import EventView, IntentView, public_state, read_events
from app.people.contacts import address_hash
from app.people.persons import Persons, persons_of, reads_of
from app.render import CannotRender, body_for, render
from models.base import Base
from models.ledger import Event, Joining
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
    persons: Persons
    holders: dict[tuple[str, str], IntentView]
    entries: Entries = field(default_factory=Entries)
    fresh: dict[tuple[bool, str], EventView] = field(default_factory=dict)
    joined: set[UUID] = field(default_factory=set)
    opened: set[UUID] = field(default_factory=set)
    confirms: UUID | None = None  # the suppression that these events tell the person of, and are exempt from


def accept(
    session: Session, requests: Sequence[NewEvent], *, tenant_id: UUID, source: str, confirms: UUID | None = None, now: datetime
) -> list[Acceptance]:
    """Accept a page of requests of one tenant, in order, each on its own; Raced when another was first."""
    known = _read(session, requests, tenant_id=tenant_id, source=source, now=now)
    known.confirms = confirms
    results = [_accept_one(known, request) for request in requests]
    joined = known.joined - known.opened
    if joined:
        kept = rows(session, KEEP_HOLDERS, ids=sorted(joined))
        if len(kept) < len(joined):
            raise Raced("an intent closed while an event was joining it")
    if known.entries.by_table:
        try:
            run_together(session, [*known.persons.statements(), *known.entries.statements(WRITE_ORDER)])
        except errors.UniqueViolation as error:
            raise Raced("another acceptance wrote this key, person or contact first") from error
    return _with_duplicates(session, results, tenant_id=tenant_id)


def _read(session: Session, requests: Sequence[NewEvent], *, tenant_id: UUID, source: str, now: datetime) -> _Known:
    gates = [(tenant_id, address_hash(Channel.SMS, r.number.e164).digest) for r in requests if r.number is not None]
    are_known = len(gates) == len(requests)
    people = reads_of([addressee(r) for r in requests], left_open(requests), tenant_id=tenant_id)
    params: dict[str, Any] = {"tenant": tenant_id}
    _, *found = run_together(
        session,
        [
            # First: what a cancellation closed meanwhile is seen by everything that is read after it.
            occasion.share(tenant_id, [(r.type, r.subject) for r in requests]),
            (KNOWN_EVENTS, params | {"givens": [r.given_key is not None for r in requests], "keys": [r.key for r in requests]}),
            (TEMPLATES, params | {"names": sorted({r.template_name for r in requests})}),
            (HOLDERS, params | {"keys": sorted({r.business_key for r in requests})}),
            *people,
            *(statements([tenant_id], gates, now=now) if are_known else []),
        ],
    )
    events, templates, holders, *found = found
    persons = persons_of(found[: len(people)], tenant_id=tenant_id, now=now)
    around = found[len(people) :]
    if not are_known:  # the gates of stored addresses are found by now
        gates += [(tenant_id, stored.address_hash) for stored in persons.stored.values()]
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
        persons=persons,
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
    problems, reached = _problems_of(known, request, template), reach(known.persons, request)
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
    key = known.persons.know(request.recipient_ref)
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
    intents = (_wish(known, request, reached, view, channel, text) for channel in request.channels)
    return replace(view, intents=tuple(intents))


def _wish(known: _Known, request: NewEvent, reached: Reached, view: EventView, channel: Channel, text: str) -> IntentView:
    """Open an intent on one channel, or join the one that holds the business key."""
    contact = reached.contact or known.persons.contact(request.recipient_ref, channel, reached.number)
    holder = known.holders.get((request.business_key, channel))
    if holder is not None:
        known.entries.add(
            Joining,
            event_id=view.event_id,
            channel=channel,
            intent_id=holder.intent_id,
            tenant_id=known.tenant_id,
            contact_id=contact.contact_id,
            joined_at=known.now,
        )
        known.joined.add(holder.intent_id)
        return holder
    wish = Wish(
        tenant_id=known.tenant_id,
        business_key=request.business_key,
        channel=channel,
        category=Category(view.category),
        gate_hash=contact.address_hash,
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
        confirms=str(known.confirms) if known.confirms else None,
    )
    opening = Opening(view.event_id, request.recipient_ref, contact.contact_id, wish, text)
    opened = open_intent(known.entries, opening, known.around, now=known.now)
    if opened.state in {PublicState.QUEUED, PublicState.DEFERRED}:
        known.holders[(request.business_key, channel)] = replace(opened, joined=True)
        known.opened.add(opened.intent_id)
    return opened


def _with_duplicates(session: Session, results: Sequence[Acceptance | UUID], *, tenant_id: UUID) -> list[Acceptance]:
    repeated = [result for result in results if isinstance(result, UUID)]
    views = read_events(session, tenant_id=tenant_id, event_ids=repeated) if repeated else {}
    return [replace(views[result], duplicate=True) if isinstance(result, UUID) else result for result in results]
