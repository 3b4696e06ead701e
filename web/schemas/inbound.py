"""Inbound texts on the wire."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from policy.keywords import Word
from web.schemas.fields import PRINTABLE, AnswerSchema, Instant
from web.schemas.history import PAGE_MAX


class InboundQuerySchema(Schema):
    """Which texts, and after which cursor."""

    class Meta:
        """A misspelt filter would show more than was asked for."""

        unknown = RAISE

    recipient = fields.String(
        load_default=None, validate=[validate.Length(1, 200), validate.Regexp(PRINTABLE)], metadata={"description": "a ref"}
    )
    after = fields.String(load_default=None, validate=validate.Length(1, 64), metadata={"description": "a `next_cursor`"})
    limit = fields.Integer(load_default=50, validate=validate.Range(1, PAGE_MAX))


class InboundTextSchema(AnswerSchema):
    """One text that somebody wrote."""

    id = fields.UUID(required=True)
    at = Instant(required=True)
    route = fields.String(required=True)
    recipients = fields.List(
        fields.String(), required=True, metadata={"description": "the refs of those who have, or had, this address"}
    )
    word = fields.String(required=True, validate=validate.OneOf(list(Word)), metadata={"description": "what it asks for"})
    review = fields.Boolean(required=True, metadata={"description": "a person should read it: it may ask for more than its word"})
    address = fields.String(
        required=True,
        allow_none=True,
        data_key="from",
        metadata={"description": "null after the person was erased, and of a call that could not be read"},
    )
    text = fields.String(required=True, allow_none=True)


class InboxSchema(AnswerSchema):
    """One page of what people wrote."""

    items = fields.List(fields.Nested(InboundTextSchema), required=True)
    next_cursor = fields.String(required=True, metadata={"description": "give it as `after`, also when there is nothing new"})
    has_more = fields.Boolean(required=True)
