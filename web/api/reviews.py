"""Reviews: open questions that a person settles, one or a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from flask_smorest import Blueprint

from app.desk.questions import ReviewView, list_groups, list_questions, read_question
from app.desk.settle import Answer, Group, Settled, settle, settle_group
from app.ground.db import Tx
from policy.words import Lane, Settlement
from tasks.doorbell import ring
from web.auth import Caller, as_caller
from web.describe import Operation, operation
from web.reading import later, read_body, read_query
from web.schemas.reviews import (
    GroupSettledSchema,
    GroupsSchema,
    ReviewSchema,
    ReviewsQuerySchema,
    ReviewsSchema,
    SettleGroupSchema,
    SettleSchema,
)

blueprint = Blueprint("reviews", __name__, description="Open questions that only a person may settle.")

SCOPE: Final = "operator"
MISTAKES: Final = ("invalid_field", "unknown_field", "invalid_request")
LIST: Final = Operation(answers={200: ReviewsSchema}, scope=SCOPE, codes=MISTAKES, query=ReviewsQuerySchema)
GROUPS: Final = Operation(answers={200: GroupsSchema}, scope=SCOPE)
GET: Final = Operation(answers={200: ReviewSchema}, scope=SCOPE, codes=("not_found",))
SETTLE: Final = Operation(
    answers={200: ReviewSchema},
    scope=SCOPE,
    codes=(*MISTAKES, "not_found", "personal_value", "already_settled", "cannot_settle"),
    body=SettleSchema,
    methods=("POST",),
)
SETTLE_GROUP: Final = Operation(
    answers={200: GroupSettledSchema},
    scope=SCOPE,
    codes=(*MISTAKES, "unknown_route", "personal_value", "count_changed"),
    body=SettleGroupSchema,
    methods=("POST",),
)


@operation(blueprint, "/v1/reviews", LIST)
def get_reviews() -> object:
    """List open questions one by one, the oldest first, with how each can be settled."""
    asked = later(lambda: read_query(ReviewsQuerySchema()))
    return as_caller(LIST.scope, lambda tx, caller: _list(tx, caller, asked()))


@operation(blueprint, "/v1/reviews/groups", GROUPS)
def get_groups() -> object:
    """Count open questions by route and cause, with the oldest's age and what is at stake."""
    return {"items": as_caller(GROUPS.scope, lambda tx, c: list_groups(tx.session, tenant_id=c.tenant_id, now=tx.now))}


@operation(blueprint, "/v1/reviews/<uuid:review_id>", GET)
def get_review(review_id: UUID) -> object:
    """See one question, open or settled."""
    return as_caller(GET.scope, lambda tx, caller: _read(tx, caller, review_id))


@operation(blueprint, "/v1/reviews/<uuid:review_id>/settle", SETTLE)
def post_settle(review_id: UUID) -> object:
    """Settle one question. Of two who settle it, the second is told what the first said."""
    asked = later(lambda: read_body(SettleSchema()))
    view, settlement = as_caller(SETTLE.scope, lambda tx, caller: _settle(tx, caller, review_id, asked()))
    _wake(settlement)
    return view


@operation(blueprint, "/v1/reviews/settle", SETTLE_GROUP)
def post_settle_group() -> object:
    """Settle what a group holds, if that is still as many as were counted; what cannot be settled so stays open."""
    asked = later(lambda: read_body(SettleGroupSchema()))
    settled, settlement = as_caller(SETTLE_GROUP.scope, lambda tx, caller: _settle_group(tx, caller, asked()))
    _wake(settlement)
    left = [{"why": why.value, "detail": why.words, "count": count} for why, count in sorted(settled.left.items())]
    return {"settled": settled.count, "left": left}


def _list(tx: Tx, caller: Caller, query: Mapping[str, Any]) -> dict[str, Any]:
    limit = query["limit"]
    found = list_questions(
        tx.session,
        tenant_id=caller.tenant_id,
        route=query.get("route"),
        cause=query.get("cause"),
        after=query["after"],
        limit=limit + 1,
        now=tx.now,
    )
    return {
        "items": [_document(view) for view in found[:limit]],
        "next_cursor": found[limit - 1].review.id if len(found) > limit else None,
    }


def _read(tx: Tx, caller: Caller, review_id: UUID) -> dict[str, Any]:
    return _document(read_question(tx.session, tenant_id=caller.tenant_id, review_id=review_id, now=tx.now))


def _settle(tx: Tx, caller: Caller, review_id: UUID, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Settlement]:
    answer = _answer(caller, asked)
    settle(tx.session, tenant_id=caller.tenant_id, review_id=review_id, answer=answer, now=tx.now)
    return _read(tx, caller, review_id), answer.settlement


def _settle_group(tx: Tx, caller: Caller, asked: Mapping[str, Any]) -> tuple[Settled, Settlement]:
    answer = _answer(caller, asked)
    group = Group(asked["route"], asked["cause"], asked["count"])
    return settle_group(tx.session, tenant_id=caller.tenant_id, group=group, answer=answer, now=tx.now), answer.settlement


def _answer(caller: Caller, asked: Mapping[str, Any]) -> Answer:
    return Answer(Settlement(asked["settlement"]), asked["reason"], caller.actor)


def _document(view: ReviewView) -> dict[str, Any]:
    return {**view.review._asdict(), "open_seconds": view.open_for, "answers": view.answers}


def _wake(settlement: Settlement) -> None:
    for lane in Lane if settlement is Settlement.RESEND else ():
        ring(lane)
