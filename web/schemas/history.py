"""History on the wire."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from policy.states import PublicState
from web.schemas.fields import PRINTABLE, AnswerSchema, Instant

PAGE_MAX = 100


class HistoryQuerySchema(Schema):
    """Which items, and after which cursor."""

    class Meta:
        """A misspelt filter would show more than was asked for."""

        unknown = RAISE

    recipient = fields.String(
        load_default=None, validate=[validate.Length(1, 200), validate.Regexp(PRINTABLE)], metadata={"description": "a ref"}
    )
    event = fields.UUID(load_default=None)
    after = fields.String(load_default=None, validate=validate.Length(1, 64), metadata={"description": "a `next_cursor`"})
    limit = fields.Integer(load_default=50, validate=validate.Range(1, PAGE_MAX))


class ItemSchema(AnswerSchema):
    """One change of one channel's state."""

    id = fields.UUID(required=True)
    at = Instant(required=True)
    event_id = fields.UUID(required=True)
    key = fields.String(required=True)
    type = fields.String(required=True)
    subject = fields.String(required=True)
    intent_id = fields.UUID(required=True)
    channel = fields.String(required=True)
    attempt = fields.Integer(required=True)
    n = fields.Integer(required=True, metadata={"description": "counted on the intent, from 1"})
    state = fields.String(required=True, validate=validate.OneOf(list(PublicState)))
    reason = fields.String(required=True, allow_none=True, metadata={"description": "from /v1/reasons"})
    next_at = Instant(required=True, allow_none=True)


class HistorySchema(AnswerSchema):
    """One page of history."""

    items = fields.List(fields.Nested(ItemSchema), required=True)
    next_cursor = fields.String(required=True, metadata={"description": "give it as `after`, also when there is nothing new"})
    has_more = fields.Boolean(required=True)
    complete_until = Instant(required=True, metadata={"description": "everything that happened before is in the history"})
    server_time = Instant(required=True)
    poll_after_seconds = fields.Float(required=True)


class ReasonSchema(AnswerSchema):
    """A reason of the catalogue."""

    code = fields.String(required=True)
    meaning = fields.String(required=True)
    what_to_do = fields.String(required=True)


class ReasonsSchema(AnswerSchema):
    """The catalogue of reasons."""

    items = fields.List(fields.Nested(ReasonSchema), required=True)
