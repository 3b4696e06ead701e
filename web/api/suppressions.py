"""Suppressions: who is not to be contacted, how that came about, and how it is lifted."""

from __future__ import annotations

from typing import Any, Final

from flask_smorest import Blueprint

from app.desk.asked import problem_of, read_suppression_of
from app.desk.suppress import Lifted, lift_suppressions, order_suppression
from app.ground.db import Tx
from app.ledger.request import LOOKS_PERSONAL, Problem
from app.people.contacts import InvalidNumber, address_hash, read_number
from app.people.persons import NotKept
from app.people.provenance import Act, Page, acts_of_address, acts_of_person
from app.people.recipients import get_known
from app.people.suppressions import NewSuppression, Told
from policy.words import Channel
from web.api.recipients import read_ref_of
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.problems import refusal_of
from web.reading import EVENT_BYTES, later, read_body, read_json, read_query
from web.schemas.suppressions import (
    ActsQuerySchema,
    ActsSchema,
    LiftedSchema,
    LiftRequestSchema,
    NumberSuppressionRequestSchema,
    SearchRequestSchema,
    SuppressedSchema,
    SuppressionRequestSchema,
)

blueprint = Blueprint("suppressions", __name__, description="Who is not to be contacted, how that came about, and lifting it.")

READ_SCOPE: Final = "events:read"
WRITE_SCOPE: Final = "events:write"
MISTAKES: Final = ("invalid_field", "unknown_field", "invalid_request", "personal_value", "invalid_number")

GET: Final = Operation(
    answers={200: ActsSchema},
    scope=READ_SCOPE,
    codes=("not_found", "invalid_field", "unknown_field", "invalid_request"),
    query=ActsQuerySchema,
)
POST: Final = Operation(
    answers={201: SuppressedSchema, 200: SuppressedSchema},
    scope=WRITE_SCOPE,
    codes=(*MISTAKES, "no_address"),
    body=SuppressionRequestSchema,
    methods=("POST",),
)
POST_NUMBER: Final = Operation(
    answers={201: SuppressedSchema, 200: SuppressedSchema},
    scope=WRITE_SCOPE,
    codes=MISTAKES,
    body=NumberSuppressionRequestSchema,
    methods=("POST",),
)
SEARCH: Final = Operation(
    answers={200: ActsSchema},
    scope=READ_SCOPE,
    codes=("invalid_field", "unknown_field", "invalid_request", "invalid_number"),
    body=SearchRequestSchema,
    methods=("POST",),
)
LIFT: Final = Operation(
    answers={200: LiftedSchema},
    scope="operator",
    codes=("invalid_field", "unknown_field", "invalid_request", "personal_value", "unknown_suppression"),
    body=LiftRequestSchema,
    methods=("POST",),
)


@operation(blueprint, "/v1/recipients/<ref>/suppressions", GET)
def get_suppressions(ref: str) -> object:
    """List what was said of a person's numbers, not to contact them and that this was lifted, the newest first."""
    asked = later(lambda: read_query(ActsQuerySchema()))
    return as_caller(GET.scope, lambda tx, caller: _list(tx, caller, ref, asked()))


@operation(blueprint, "/v1/recipients/<ref>/suppressions", POST)
def post_suppression(ref: str) -> object:
    """Suppress a person: no attempt is prepared for them any more. Repeating it changes nothing."""
    asked = later(lambda: _read(read_ref_of(ref)))
    return _answer(as_caller(POST.scope, lambda tx, caller: _order(tx, caller, asked())))


@operation(blueprint, "/v1/suppressions", POST_NUMBER)
def post_number() -> object:
    """Suppress a number, be it a recipient's or not; of a stranger's no more than a fingerprint is kept."""
    asked = later(lambda: _read(None))
    return _answer(as_caller(POST_NUMBER.scope, lambda tx, caller: _order(tx, caller, asked())))


@operation(blueprint, "/v1/suppressions/search", SEARCH)
def search_suppressions() -> object:
    """List what was said of a number, be it a recipient's or not, the newest first."""
    asked = later(_read_search)
    return as_caller(SEARCH.scope, lambda tx, caller: _search(tx, caller, asked()))


@operation(blueprint, "/v1/suppressions/lift", LIFT)
def lift() -> object:
    """Lift suppressions, each named, whatever their source. Repeating it changes nothing."""
    asked = later(_read_lift)
    lifted = as_caller(LIFT.scope, lambda tx, caller: _lift(tx, caller, asked()))
    return {"lifted": lifted.lifted, "lifted_before": lifted.before}


def _read(ref: str | None) -> NewSuppression:
    read = read_suppression_of(read_json(EVENT_BYTES), ref=ref)
    if isinstance(read, NewSuppression):
        return read
    raise refusal_of(read)


def _read_search() -> dict[str, Any]:
    asked = read_body(SearchRequestSchema())
    try:
        number = read_number(asked["sms"])
    except InvalidNumber as error:
        raise refusal_of([Problem("invalid_number", str(error), "/sms")]) from error
    return asked | {"digest": address_hash(Channel.SMS, number.e164).digest}


def _read_lift() -> dict[str, Any]:
    asked = read_body(LiftRequestSchema())
    if LOOKS_PERSONAL.search(asked["reason"]):
        raise refusal_of([Problem("personal_value", "must not hold an address: it is kept in clear", "/reason")])
    return asked


def _order(tx: Tx, caller: Caller, asked: NewSuppression) -> Told:
    told = order_suppression(tx.session, asked, tenant_id=caller.tenant_id, actor=caller.actor, now=tx.now)
    if isinstance(told, NotKept):
        raise refusal_of([problem_of(told)])
    return told


def _answer(told: Told) -> tuple[dict[str, Any], int]:
    return {"suppressions": told.ids, "duplicate": not told.is_new}, 201 if told.is_new else 200


def _list(tx: Tx, caller: Caller, ref: str, query: dict[str, Any]) -> dict[str, Any]:
    get_known(tx.session, tenant_id=caller.tenant_id, ref=ref)
    return _page(acts_of_person(tx.session, _wanted(query), tenant_id=caller.tenant_id, ref=ref), query["limit"])


def _search(tx: Tx, caller: Caller, asked: dict[str, Any]) -> dict[str, Any]:
    found = acts_of_address(tx.session, _wanted(asked), tenant_id=caller.tenant_id, digest=asked["digest"])
    return _page(found, asked["limit"])


def _wanted(asked: dict[str, Any]) -> Page:
    return Page(asked["limit"] + 1, asked["after"], standing=asked["standing"])


def _page(found: list[Act], limit: int) -> dict[str, Any]:
    return {"items": found[:limit], "next_cursor": found[limit - 1].id if len(found) > limit else None}


def _lift(tx: Tx, caller: Caller, asked: dict[str, Any]) -> Lifted:
    ids, reason = asked["suppressions"], asked["reason"]
    return lift_suppressions(tx.session, ids, tenant_id=caller.tenant_id, actor=caller.actor, reason=reason, now=tx.now)
