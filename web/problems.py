"""Problems: every error of the edge becomes RFC 9457, with a code from one catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from traceback import extract_tb
from typing import Any, Final

import orjson
from flask import Flask, Response, g
from werkzeug.exceptions import HTTPException

from app.desk.cancel import NoSuchEvent
from app.desk.pause import NoSuchRoute
from app.desk.settle import AlreadySettled, CannotSettle, CountChanged, NoSuchReview, PersonalReason
from app.desk.suppress import NoSuchSuppression
from app.flows.together import Interrupted
from app.ground.db import CommitUnknown, DatabaseAway, Raced
from app.ground.errors import DaybookError
from app.ground.log import log
from app.ledger.cancellation import KeyReused, NoSuchCancellation
from app.ledger.feed import UnknownCursor
from app.ledger.request import Problem
from app.people.recipients import NoSuchRecipient

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_SECONDS: Final = "2"


@dataclass(frozen=True, slots=True)
class Kind:
    """What a code means: the status it comes with, and its title."""

    status: int
    title: str


# code -> what it means. /docs prints it, and `type` points there.
PROBLEMS: Final[Mapping[str, Kind]] = {
    # of the edge
    "bad_request": Kind(400, "The request cannot be read"),
    "malformed_json": Kind(400, "The body is not one well-formed JSON document"),
    "unknown_cursor": Kind(400, "This cursor cannot be followed: read again from the start"),
    "unauthorized": Kind(401, "A valid API key is needed"),
    "scope_missing": Kind(403, "The API key does not have the scope that this needs"),
    "not_authentic": Kind(403, "The call does not verify as the carrier's"),
    "not_found": Kind(404, "There is nothing here"),
    "method_not_allowed": Kind(405, "This method is not allowed here"),
    "already_settled": Kind(409, "Somebody, or an outcome, settled this first"),
    "count_changed": Kind(409, "The group is not what was counted: count it again"),
    "cannot_settle": Kind(409, "This question cannot be settled so"),
    "too_large": Kind(413, "The body is larger than this takes"),
    "unsupported_media_type": Kind(415, "The body must be application/json"),
    "internal": Kind(500, "Something went wrong on our side"),
    "database_away": Kind(503, "The database cannot be reached, or did not say whether it committed"),
    "busy": Kind(503, "Others were first too often"),
    "not_ready": Kind(503, "Some part is not ready"),
    # of a request
    "invalid_request": Kind(422, "The request has several mistakes"),
    "invalid_field": Kind(422, "A field has a value that it cannot have"),
    "unknown_field": Kind(422, "A field is not known here"),
    "invalid_key": Kind(422, "The key is not 1 to 255 printable ASCII characters, or header and body disagree"),
    "no_address": Kind(422, "The recipient has no address"),
    "invalid_number": Kind(422, "This is not a telephone number that can exist"),
    # of the tenant's books
    "personal_value": Kind(422, "An address stands where it would be kept in clear"),
    "key_reused": Kind(422, "The key was used with other content"),
    "unknown_template": Kind(422, "No such template is published"),
    "category_mismatch": Kind(422, "The template is of another category"),
    "category_closed": Kind(422, "Events of this category are not accepted yet"),
    "channel_mismatch": Kind(422, "The template has no text for this channel"),
    "missing_variable": Kind(422, "The template needs a variable that the data does not have"),
    "already_expired": Kind(422, "The event ends before it could begin"),
    "recipient_erased": Kind(422, "The recipient was erased"),
    "cannot_render": Kind(422, "The template refuses this data"),
    "empty_text": Kind(422, "The template gives an empty text with this data"),
    "unknown_route": Kind(422, "There is no route of this name"),
    "unknown_suppression": Kind(422, "There is no suppression of this id"),
}

BY_STATUS: Final[Mapping[int, str]] = {
    401: "unauthorized",
    403: "scope_missing",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}

BY_ERROR: Final[Mapping[type[DaybookError], str]] = {
    NoSuchEvent: "not_found",
    NoSuchReview: "not_found",
    NoSuchCancellation: "not_found",
    KeyReused: "key_reused",
    NoSuchRecipient: "not_found",
    NoSuchRoute: "unknown_route",
    NoSuchSuppression: "unknown_suppression",
    PersonalReason: "personal_value",
    AlreadySettled: "already_settled",
    CountChanged: "count_changed",
    CannotSettle: "cannot_settle",
    UnknownCursor: "unknown_cursor",
    DatabaseAway: "database_away",
    CommitUnknown: "database_away",
    Interrupted: "database_away",
    Raced: "busy",
}

# Their words are ours alone, and say what the code does not.
TELLING: Final = (AlreadySettled, CountChanged, CannotSettle)


class Refusal(DaybookError):
    """The edge refuses a request, with a code of the catalogue."""

    def __init__(
        self, code: str, detail: str = "", *, errors: Sequence[Problem] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def refusal_of(mistakes: Sequence[Problem]) -> Refusal:
    """Make one refusal of a request's mistakes: under their code if they share one."""
    codes = {mistake.code for mistake in mistakes}
    code = codes.pop() if len(codes) == 1 else "invalid_request"
    detail = "; ".join(f"{m.pointer} {m.detail}".strip() for m in mistakes[:3])
    return Refusal(code, detail, errors=mistakes)


def problem_of(refusal: Refusal) -> dict[str, Any]:
    """Write a refusal as RFC 9457 has it."""
    kind = PROBLEMS[refusal.code]
    return {
        "type": f"/docs#{refusal.code}",
        "title": kind.title,
        "status": kind.status,
        "detail": refusal.detail or kind.title,
        "code": refusal.code,
        "errors": [{"code": e.code, "detail": e.detail, "pointer": e.pointer} for e in refusal.errors],
        "request_id": g.get("request_id", ""),
    }


def answer_refusal(refusal: Refusal) -> Response:
    """Answer with a problem."""
    problem = problem_of(refusal)
    answer = Response(orjson.dumps(problem), status=problem["status"], content_type=MEDIA_TYPE)
    if problem["status"] == PROBLEMS["database_away"].status:
        answer.headers["Retry-After"] = RETRY_AFTER_SECONDS
    answer.headers.update(refusal.headers)
    return answer


def register(app: Flask) -> None:
    """Answer every error of the app with a problem."""
    app.register_error_handler(Refusal, answer_refusal)
    for error in BY_ERROR:
        app.register_error_handler(error, _answer_known)
    app.register_error_handler(HTTPException, _answer_werkzeug)
    app.register_error_handler(Exception, _answer_unexpected)


def _answer_known(error: DaybookError) -> Response:
    code = next(code for kind, code in BY_ERROR.items() if isinstance(error, kind))
    if PROBLEMS[code].status >= PROBLEMS["internal"].status:
        log.error("database_trouble", cause=type(error).__name__)
    return answer_refusal(Refusal(code, str(error) if isinstance(error, TELLING) else ""))


def _answer_werkzeug(error: HTTPException) -> Response:
    status = error.code or PROBLEMS["internal"].status
    code = BY_STATUS.get(status, "bad_request" if status < PROBLEMS["internal"].status else "internal")
    # Its own headers say what is allowed (405); its words may quote the request, so they stay here.
    headers = {name: value for name, value in error.get_headers() if name == "Allow"}
    return answer_refusal(Refusal(code, headers=headers))


def _answer_unexpected(error: Exception) -> Response:
    # Type and place only: the message may quote a value.
    places = [f"{place.filename.rsplit('/', 1)[-1]}:{place.lineno}" for place in extract_tb(error.__traceback__)[-4:]]
    log.error("request_failed", cause=type(error).__name__, at=" > ".join(places))
    return answer_refusal(Refusal("internal"))
