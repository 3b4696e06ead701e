"""Recipients: how people are described, what they agreed to, and what they ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from flask_smorest import Blueprint

from app.desk.asked import problem_of, read_consent_of, read_preference_of, read_recipient_of, read_ref
from app.ground.db import Tx
from app.ledger.request import Problem
from app.people.consents import NewConsent, list_consents, record_consents
from app.people.evidence import Kept
from app.people.persons import NotKept
from app.people.preferences import NewPreference, preferences_of, record_preferences
from app.people.recipients import NewRecipient, RecipientView, get_known, put_recipient, read_recipient
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.problems import refusal_of
from web.reading import EVENT_BYTES, later, read_json, read_query
from web.schemas.recipients import (
    PREFERENCE_COUNT,
    ConsentKeptSchema,
    ConsentQuerySchema,
    ConsentRequestSchema,
    ConsentsSchema,
    PreferencesRequestSchema,
    PreferencesSchema,
    RecipientRequestSchema,
    RecipientViewSchema,
)

blueprint = Blueprint("recipients", __name__, description="People: addresses, consents, preferences.")

READ_SCOPE: Final = "events:read"
WRITE_SCOPE: Final = "events:write"
MISTAKES: Final = ("invalid_field", "unknown_field", "invalid_request", "personal_value", "recipient_erased")

GET: Final = Operation(answers={200: RecipientViewSchema}, scope=READ_SCOPE, codes=("not_found",))
PUT: Final = Operation(
    answers={200: RecipientViewSchema},
    scope=WRITE_SCOPE,
    codes=(*MISTAKES, "invalid_number"),
    body=RecipientRequestSchema,
    methods=("PUT",),
)
GET_CONSENTS: Final = Operation(
    answers={200: ConsentsSchema},
    scope=READ_SCOPE,
    codes=("not_found", "invalid_field", "unknown_field", "invalid_request"),
    query=ConsentQuerySchema,
)
POST_CONSENT: Final = Operation(
    answers={201: ConsentKeptSchema, 200: ConsentKeptSchema},
    scope=WRITE_SCOPE,
    codes=(*MISTAKES, "invalid_number", "no_address"),
    body=ConsentRequestSchema,
    methods=("POST",),
)
GET_PREFERENCES: Final = Operation(answers={200: PreferencesSchema}, scope=READ_SCOPE, codes=("not_found",))
PUT_PREFERENCES: Final = Operation(
    answers={200: PreferencesSchema},
    scope=WRITE_SCOPE,
    codes=(*MISTAKES, "no_address", "not_found"),
    body=PreferencesRequestSchema,
    methods=("PUT",),
)


@operation(blueprint, "/v1/recipients/<ref>", GET)
def get_recipient(ref: str) -> object:
    """See how a person is described; addresses come masked."""
    return as_caller(GET.scope, lambda tx, c: read_recipient(tx.session, tenant_id=c.tenant_id, ref=ref))


@operation(blueprint, "/v1/recipients/<ref>", PUT)
def put(ref: str) -> object:
    """Describe a person from now on: what is left out is not known any more. Repeating it changes nothing."""
    asked = later(lambda: _read_recipient(ref))
    return as_caller(PUT.scope, lambda tx, caller: _put(tx, caller, asked()))


@operation(blueprint, "/v1/recipients/<ref>/consents", GET_CONSENTS)
def get_consents(ref: str) -> object:
    """List what was told of consent for a person's addresses, the newest first."""
    asked = later(lambda: read_query(ConsentQuerySchema()))
    return as_caller(GET_CONSENTS.scope, lambda tx, caller: _list(tx, caller, ref, asked()))


@operation(blueprint, "/v1/recipients/<ref>/consents", POST_CONSENT)
def post_consent(ref: str) -> object:
    """Keep one act of consent: a grant with its evidence, or a withdrawal, which the next handoff already heeds."""
    asked = later(lambda: _read_consent(ref))
    kept = as_caller(POST_CONSENT.scope, lambda tx, caller: _record(tx, caller, asked()))
    return {"id": kept.id, "duplicate": not kept.is_new}, 201 if kept.is_new else 200


@operation(blueprint, "/v1/recipients/<ref>/preferences", GET_PREFERENCES)
def get_preferences(ref: str) -> object:
    """See what a person asks for, at the address where they are reached now."""
    return as_caller(GET_PREFERENCES.scope, lambda tx, caller: _standing(tx, caller, ref))


@operation(blueprint, "/v1/recipients/<ref>/preferences", PUT_PREFERENCES)
def put_preferences(ref: str) -> object:
    """Say what a person asks for; what is not named stays as it is, and repeating it changes nothing."""
    asked = later(lambda: _read_preferences(ref))
    return as_caller(PUT_PREFERENCES.scope, lambda tx, caller: _prefer(tx, caller, ref, asked()))


def read_ref_of(text: str) -> str:
    """Read the ref that stands in the path."""
    read = read_ref(text)
    if isinstance(read, str):
        return read
    # The place is a part of the path: no pointer leads there.
    raise refusal_of([Problem(problem.code, problem.detail, "{ref}") for problem in read])


def _read_recipient(ref: str) -> NewRecipient:
    read = read_recipient_of(read_json(EVENT_BYTES), ref=read_ref_of(ref))
    if isinstance(read, NewRecipient):
        return read
    raise refusal_of(read)


def _read_consent(ref: str) -> NewConsent:
    read = read_consent_of(read_json(EVENT_BYTES), ref=read_ref_of(ref))
    if isinstance(read, NewConsent):
        return read
    raise refusal_of(read)


def _read_preferences(ref: str) -> list[NewPreference]:
    raw, ref = read_json(EVENT_BYTES), read_ref_of(ref)
    asked = raw.get("preferences") if isinstance(raw, dict) else None
    if not isinstance(asked, list) or not 1 <= len(asked) <= PREFERENCE_COUNT:
        raise refusal_of([Problem("invalid_field", f"must be a list of 1 to {PREFERENCE_COUNT} preferences", "/preferences")])
    read = [read_preference_of(each, ref=ref, pointer=f"/preferences/{n}") for n, each in enumerate(asked)]
    mistakes = [problem for each in read if isinstance(each, list) for problem in each]
    if isinstance(raw, dict) and len(raw) > 1:
        mistakes.append(Problem("unknown_field", "only `preferences` is a field of this request"))
    scopes = {(each.about.channel, each.category) for each in read if isinstance(each, NewPreference)}
    if not mistakes and len(scopes) < len(read):
        mistakes.append(Problem("invalid_field", "must name each channel and category once", "/preferences"))
    if mistakes:
        raise refusal_of(mistakes)
    return [each for each in read if isinstance(each, NewPreference)]


def _put(tx: Tx, caller: Caller, asked: NewRecipient) -> RecipientView:
    put = put_recipient(tx.session, asked, tenant_id=caller.tenant_id, actor=caller.actor, now=tx.now)
    if isinstance(put, NotKept):
        raise refusal_of([problem_of(put)])
    return read_recipient(tx.session, tenant_id=caller.tenant_id, ref=asked.ref)


def _record(tx: Tx, caller: Caller, asked: NewConsent) -> Kept:
    (kept,) = record_consents(tx.session, [asked], tenant_id=caller.tenant_id, actor=caller.actor, now=tx.now)
    if isinstance(kept, NotKept):
        raise refusal_of([problem_of(kept)])
    return kept


def _list(tx: Tx, caller: Caller, ref: str, query: dict[str, Any]) -> dict[str, Any]:
    get_known(tx.session, tenant_id=caller.tenant_id, ref=ref)
    limit = query["limit"]
    found = list_consents(tx.session, tenant_id=caller.tenant_id, ref=ref, after=query["after"], limit=limit + 1)
    return {"items": found[:limit], "next_cursor": found[limit - 1].id if len(found) > limit else None}


def _prefer(tx: Tx, caller: Caller, ref: str, asked: Sequence[NewPreference]) -> dict[str, Any]:
    kept = record_preferences(tx.session, asked, tenant_id=caller.tenant_id, actor=caller.actor, now=tx.now)
    wrong = [problem_of(why, pointer=f"/preferences/{n}", instant="at") for n, why in enumerate(kept) if isinstance(why, NotKept)]
    if wrong:
        raise refusal_of(wrong)
    return _standing(tx, caller, ref)


def _standing(tx: Tx, caller: Caller, ref: str) -> dict[str, Any]:
    get_known(tx.session, tenant_id=caller.tenant_id, ref=ref)
    return {"items": preferences_of(tx.session, tenant_id=caller.tenant_id, ref=ref)}
