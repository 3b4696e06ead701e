"""Events: post one or many, see how one stands, cancel it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

import structlog
from flask import g, request
from flask_smorest import Blueprint

from app.desk.cancel import Cancelled, NoSuchEvent, cancel_event
from app.flows.together import Together
from app.ground.db import Tx
from app.ledger.accept import Acceptance, Refused, accept
from app.ledger.request import NewEvent, Problem, read_request
from app.ledger.view import EventView, read_events
from policy.states import PublicState
from policy.words import LANES, Category
from tasks.doorbell import ring
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.problems import PROBLEMS, Refusal, problem_of, refusal_of
from web.reading import BATCH_BYTES, EVENT_BYTES, later, read_json
from web.schemas.events import (
    BATCH_COUNT,
    AcceptedSchema,
    BatchRequestSchema,
    CancelledSchema,
    EventRequestSchema,
    EventSchema,
    ResultsSchema,
)

blueprint = Blueprint("events", __name__, description="What happened, and whom it concerns.")

ACCEPTED: Final = 202
REPEATED: Final = 200
KEY_HEADER: Final = "Idempotency-Key"
REFUSALS: Final = tuple(code for code, kind in PROBLEMS.items() if kind.status == 422 and code != "unknown_route")  # noqa: PLR2004

POST: Final = Operation(
    answers={ACCEPTED: AcceptedSchema, REPEATED: AcceptedSchema},
    scope="events:write",
    codes=REFUSALS,
    body=EventRequestSchema,
    headers=(KEY_HEADER,),
    methods=("POST",),
)
BATCH: Final = Operation(
    answers={200: ResultsSchema},
    scope="events:write",
    codes=("invalid_field", "unknown_field", "invalid_key", "invalid_request"),
    body=BatchRequestSchema,
    methods=("POST",),
)
GET: Final = Operation(answers={200: EventSchema}, scope="events:read", codes=("not_found",))
CANCEL: Final = Operation(answers={200: CancelledSchema}, scope="events:write", codes=("not_found",), methods=("POST",))


@operation(blueprint, "/v1/events", POST)
def post_event() -> object:
    """Accept one event; the same key with the same content is the same event."""
    posted = TOGETHER.ask(g.presented, _read_event())
    structlog.contextvars.bind_contextvars(tenant_id=str(posted.tenant_id))
    if isinstance(posted.answer, Refusal):
        raise posted.answer
    if isinstance(posted.answer, Refused):
        raise refusal_of(posted.answer.problems)
    return posted.answer, REPEATED if posted.answer.duplicate else ACCEPTED


@operation(blueprint, "/v1/events/batch", BATCH)
def post_batch() -> object:
    """Accept many events in order, each on its own; items carry their own keys."""
    asked = later(_read_batch)
    results = as_caller(BATCH.scope, lambda tx, caller: _accept_many(tx, caller, asked()))
    _ring_for(results)
    return {"results": [_result(result) for result in results]}


@operation(blueprint, "/v1/events/<uuid:event_id>", GET)
def get_event(event_id: UUID) -> object:
    """See how an event stands."""
    found = as_caller(GET.scope, lambda tx, c: read_events(tx.session, tenant_id=c.tenant_id, event_ids=[event_id]))
    if event_id not in found:
        raise NoSuchEvent("no such event")
    return found[event_id]


@operation(blueprint, "/v1/events/<uuid:event_id>/cancel", CANCEL)
def cancel(event_id: UUID) -> object:
    """Cancel what is still ours, and say of each channel whether it had been handed off; repeating it changes nothing."""
    cancelled = as_caller(
        CANCEL.scope,
        lambda tx, c: cancel_event(tx.session, tenant_id=c.tenant_id, event_id=event_id, actor=c.actor, now=tx.now),
    )
    # A close without a handoff can promote an event that joined: somebody may be due now.
    ring(LANES[Category(cancelled.event.category)])
    return _cancelled_document(cancelled)


def _read_event() -> NewEvent | Refusal:
    """Read now, tell later: no transaction waits for a body, and whoever may not ask is told that first."""
    try:
        read = read_request(read_json(EVENT_BYTES), header_key=request.headers.get(KEY_HEADER))
    except Refusal as refusal:
        return refusal
    return read if isinstance(read, NewEvent) else refusal_of(read)


def _read_batch() -> list[NewEvent | list[Problem]]:
    raw = read_json(BATCH_BYTES)
    events = raw.get("events") if isinstance(raw, dict) else None
    if not isinstance(events, list) or not 1 <= len(events) <= BATCH_COUNT:
        raise refusal_of([Problem("invalid_field", f"must be a list of 1 to {BATCH_COUNT} events", "/events")])
    if KEY_HEADER in request.headers:
        raise refusal_of([Problem("invalid_key", "the items of a batch carry their own keys", f"#{KEY_HEADER}")])
    if isinstance(raw, dict) and len(raw) > 1:
        raise refusal_of(
            [Problem("unknown_field", "is not a field of this request", f"/{n}") for n in sorted(set(raw) - {"events"})]
        )
    return [read_request(event) for event in events]


@dataclass(frozen=True, slots=True)
class _Posted:
    """What one of several that were posted at once gets back."""

    tenant_id: UUID
    answer: Acceptance | Refusal


def _accept_page(page: Sequence[NewEvent | Refusal]) -> list[_Posted]:
    """Accept what several requests with one key brought at once: a page like a batch's, each on its own."""
    tenant_id, results = as_caller(POST.scope, lambda tx, caller: (caller.tenant_id, _accept_read(tx, caller, page)))
    _ring_for(results)
    accepted = iter(results)
    return [_Posted(tenant_id, next(accepted) if isinstance(asked, NewEvent) else asked) for asked in page]


def _accept_read(tx: Tx, caller: Caller, page: Sequence[NewEvent | Refusal]) -> Sequence[Acceptance]:
    asked = [a for a in page if isinstance(a, NewEvent)]
    return accept(tx.session, asked, tenant_id=caller.tenant_id, source="api", now=tx.now) if asked else []


# Sixteen callers at once are a few transactions, not sixteen: each costs what a page does.
TOGETHER: Final[Together[NewEvent | Refusal, _Posted]] = Together(_accept_page)


def _accept_many(tx: Tx, caller: Caller, asked: Sequence[NewEvent | list[Problem]]) -> list[Acceptance]:
    """Accept what is well formed in one go, and put each result where its request was."""
    well_formed = [a for a in asked if isinstance(a, NewEvent)]
    accepted = (
        iter(accept(tx.session, well_formed, tenant_id=caller.tenant_id, source="api", now=tx.now)) if well_formed else iter(())
    )
    return [next(accepted) if isinstance(a, NewEvent) else Refused(tuple(a)) for a in asked]


# Made once: a schema copies all its fields when it is made, which took longer than to dump an event.
ACCEPTED_EVENT: Final = AcceptedSchema()


def _result(result: Acceptance) -> Mapping[str, Any]:
    if isinstance(result, Refused):
        return problem_of(refusal_of(result.problems))
    body: dict[str, Any] = ACCEPTED_EVENT.dump(result)
    return {"status": REPEATED if result.duplicate else ACCEPTED, **body}


def _cancelled_document(cancelled: Cancelled) -> dict[str, Any]:
    left = {intent.intent_id for intent in cancelled.handed_off}
    intents = [asdict(intent) | {"handed_off": intent.intent_id in left} for intent in cancelled.event.intents]
    return asdict(cancelled.event) | {"intents": intents}


def _ring_for(results: Iterable[Acceptance]) -> None:
    fresh = [r for r in results if isinstance(r, EventView) and not r.duplicate]
    due = [e for e in fresh if any(i.state is PublicState.QUEUED and not i.joined for i in e.intents)]
    for lane in sorted({LANES[Category(event.category)] for event in due}):
        ring(lane)
