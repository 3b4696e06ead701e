"""Reviews on the wire."""

from __future__ import annotations

from typing import Final

from marshmallow import RAISE, Schema, fields, validate

from policy.states import AttemptState, IntentState
from policy.words import Settlement
from web.schemas.fields import AnswerSchema, Instant, text

PAGE: Final = 100


class AtStakeSchema(AnswerSchema):
    """What is at risk, of one unit."""

    count = fields.Integer(required=True)
    unit = fields.String(required=True)


class GroupSchema(AnswerSchema):
    """The open reviews of one cause on one route."""

    route = fields.String(required=True, allow_none=True, metadata={"description": "a route's name"})
    cause = fields.String(required=True)
    count = fields.Integer(required=True)
    oldest_at = Instant(required=True)
    oldest_seconds = fields.TimeDelta(required=True, attribute="oldest_for")
    stake = fields.List(fields.Nested(AtStakeSchema), required=True)


class GroupsSchema(AnswerSchema):
    """Open reviews by route and cause, the oldest first."""

    items = fields.List(fields.Nested(GroupSchema), required=True)


class ReviewsQuerySchema(Schema):
    """Which open reviews, and after which one."""

    class Meta:
        """A misspelt filter would show more than was asked for."""

        unknown = RAISE

    route = text(description="a route's name")
    cause = text(description="as in the group")
    after = fields.UUID(load_default=None, metadata={"description": "`next_cursor` of the page before"})
    limit = fields.Integer(load_default=50, validate=validate.Range(1, PAGE))


class ReviewSchema(AnswerSchema):
    """One question, and what its answer depends on."""

    id = fields.UUID(required=True)
    route = fields.String(required=True, allow_none=True)
    cause = fields.String(required=True)
    opened_at = Instant(required=True)
    open_seconds = fields.TimeDelta(required=True)
    event_id = fields.UUID(required=True)
    type = fields.String(required=True)
    subject = fields.String(required=True)
    recipient = fields.String(required=True, attribute="recipient_ref", metadata={"description": "the recipient's ref"})
    stake = fields.Nested(AtStakeSchema, required=True, allow_none=True)
    expires_at = Instant(required=True)
    intent_id = fields.UUID(required=True)
    channel = fields.String(required=True)
    intent_state = fields.String(required=True, validate=validate.OneOf([*IntentState]))
    attempt_id = fields.UUID(required=True)
    attempt = fields.Integer(required=True)
    attempt_state = fields.String(required=True, validate=validate.OneOf([*AttemptState]))
    prepared_at = Instant(required=True, allow_none=True)
    answers = fields.List(
        fields.String(validate=validate.OneOf([*Settlement])),
        required=True,
        metadata={"description": "how it can be settled now; none once it is settled"},
    )
    settled_at = Instant(required=True, allow_none=True)
    settled_as = fields.String(
        required=True, allow_none=True, metadata={"description": "`heard` when an outcome answered it, else as somebody said"}
    )
    settled_by = fields.String(required=True, allow_none=True)
    settled_reason = fields.String(required=True, allow_none=True)


class ReviewsSchema(AnswerSchema):
    """A page of open reviews, the oldest first."""

    items = fields.List(fields.Nested(ReviewSchema), required=True)
    next_cursor = fields.UUID(required=True, allow_none=True, metadata={"description": "null on the last page"})


class SettleSchema(Schema):
    """How a question is settled, and why."""

    class Meta:
        """What is misspelt must not be guessed."""

        unknown = RAISE

    settlement = fields.String(
        required=True,
        data_key="as",
        validate=validate.OneOf([*Settlement]),
        metadata={"description": "`resend` may bring a second text; `leave` closes it as unknown, or only notes it"},
    )
    reason = text(required=True, description="why; it is kept in clear, so it names no address")


class SettleGroupSchema(SettleSchema):
    """Which group, as it was counted, and how its questions are settled."""

    route = fields.String(required=True, allow_none=True, metadata={"description": "as in the group; null where that is null"})
    cause = text(required=True, description="as in the group")
    count = fields.Integer(
        required=True, strict=True, validate=validate.Range(min=1), metadata={"description": "as in the group"}
    )


class LeftSchema(AnswerSchema):
    """Questions of the group that cannot be settled so."""

    why = fields.String(required=True)
    detail = fields.String(required=True)
    count = fields.Integer(required=True)


class GroupSettledSchema(AnswerSchema):
    """What became of the group."""

    settled = fields.Integer(required=True)
    left = fields.List(fields.Nested(LeftSchema), required=True, metadata={"description": "still open, and why"})
