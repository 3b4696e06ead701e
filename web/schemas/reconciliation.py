"""Reconciliation views on the wire."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from app.ledger.reconciliation import View
from web.schemas.fields import AnswerSchema, Instant
from web.schemas.reviews import AtStakeSchema

PAGE_MAX = 100


class SinceQuerySchema(Schema):
    """From when on what happened once is counted."""

    class Meta:
        """A misspelt name would show another time."""

        unknown = RAISE

    since = Instant(
        load_default=None,
        metadata={"description": "RFC 3339; of what happened once, only what happened since; 30 days ago by default"},
    )


class ViewQuerySchema(SinceQuerySchema):
    """A page of a view."""

    after = fields.UUID(load_default=None, metadata={"description": "`next_cursor` of the page before"})
    limit = fields.Integer(load_default=50, validate=validate.Range(1, PAGE_MAX))


class SummarySchema(AnswerSchema):
    """How much a view holds, since when, and what is at stake."""

    view = fields.String(required=True, validate=validate.OneOf([*View]))
    meaning = fields.String(required=True)
    count = fields.Integer(required=True)
    oldest_at = Instant(required=True, allow_none=True)
    oldest_seconds = fields.TimeDelta(required=True, allow_none=True, attribute="oldest_for")
    stake = fields.List(fields.Nested(AtStakeSchema), required=True, metadata={"description": "each event once, by unit"})


class SummariesSchema(AnswerSchema):
    """Every view, in the order of an attempt's life."""

    items = fields.List(fields.Nested(SummarySchema), required=True)


class RowSchema(AnswerSchema):
    """One row of a view; what it has none of is null."""

    id = fields.UUID(required=True)
    at = Instant(required=True)
    route = fields.String(required=True, allow_none=True)
    event_id = fields.UUID(required=True, allow_none=True)
    type = fields.String(required=True, allow_none=True)
    subject = fields.String(required=True, allow_none=True)
    recipient = fields.String(
        required=True, allow_none=True, attribute="recipient_ref", metadata={"description": "the recipient's ref"}
    )
    stake = fields.Nested(AtStakeSchema, required=True, allow_none=True)
    intent_id = fields.UUID(required=True, allow_none=True)
    attempt_id = fields.UUID(required=True, allow_none=True)
    receipt_id = fields.UUID(required=True, allow_none=True)
    detail = fields.String(required=True)


class ViewSchema(SummarySchema):
    """One view, and a page of its rows in the order of their ids, which is that of time."""

    items = fields.List(fields.Nested(RowSchema), required=True)
    next_cursor = fields.UUID(required=True, allow_none=True, metadata={"description": "null on the last page"})
