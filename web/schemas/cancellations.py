"""Cancellations of whole occasions on the wire."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from app.ledger.request import TEXT_LENGTH
from policy.states import PublicState
from policy.words import Channel
from web.schemas.fields import PRINTABLE, AnswerSchema, Instant, text

EXCEPT_COUNT = 1000
PAGE_MAX = 100


class CancellationRequestSchema(Schema):
    """What is called off: everything accepted of this type and subject that has not left."""

    class Meta:
        """A misspelt exception would cancel whoever it names."""

        unknown = RAISE

    type = text(required=True, example="class.opening")
    subject = text(required=True, description="the occasion, as the events name it", example="c-9081")
    except_ = fields.List(
        fields.String(validate=[validate.Length(min=1, max=TEXT_LENGTH), validate.Regexp(PRINTABLE)]),
        data_key="except",
        load_default=[],
        validate=validate.Length(max=EXCEPT_COUNT),
        metadata={"description": "refs of recipients who stay as they are", "example": ["m-1842"]},
    )
    reason = text(required=True, description="why; it is kept", example="seat filled")


class CancellationQuerySchema(Schema):
    """Which page of those that had been handed off."""

    class Meta:
        """A misspelt cursor would begin again."""

        unknown = RAISE

    after = fields.String(load_default=None, validate=validate.Length(1, 64), metadata={"description": "a `next_cursor`"})
    limit = fields.Integer(load_default=PAGE_MAX, validate=validate.Range(1, PAGE_MAX))


class CountsSchema(AnswerSchema):
    """What was found, each event on each channel counted once, as of the cut."""

    cancelled = fields.Integer(required=True, metadata={"description": "closed now, before any handoff"})
    handed_off = fields.Integer(required=True, metadata={"description": "had left, or may have: see `handed_off`"})
    joined = fields.Integer(required=True, metadata={"description": "had joined an earlier event's intent; will not get one"})
    closed = fields.Integer(required=True, metadata={"description": "had closed before, without a handoff"})
    excepted = fields.Integer(required=True, metadata={"description": "of the recipients that `except` names"})


class HandedOffSchema(AnswerSchema):
    """One that had left: a text cannot be recalled, its state follows what is heard."""

    event_id = fields.UUID(required=True)
    intent_id = fields.UUID(required=True)
    recipient = fields.String(required=True, attribute="recipient_ref")
    channel = fields.String(required=True, validate=validate.OneOf(list(Channel)))
    state = fields.String(required=True, validate=validate.OneOf(list(PublicState)), metadata={"description": "as it is now"})
    reason = fields.String(required=True, allow_none=True, metadata={"description": "from /v1/reasons"})
    close_request = fields.String(
        required=True, allow_none=True, metadata={"description": "asked after handoff: no new attempt follows"}
    )


class CancellationSchema(AnswerSchema):
    """A cancellation, and what it found."""

    id = fields.UUID(required=True)
    type = fields.String(required=True)
    subject = fields.String(required=True)
    excepted = fields.List(fields.String(), required=True, data_key="except")
    reason = fields.String(required=True)
    begun_at = Instant(required=True)
    cut_at = Instant(
        required=True,
        allow_none=True,
        metadata={"description": "null: it was broken off before its end, and changed nothing more"},
    )
    counts = fields.Nested(CountsSchema, required=True, allow_none=True)
    handed_off = fields.List(fields.Nested(HandedOffSchema), required=True, metadata={"description": "a page of them"})
    next_cursor = fields.String(required=True, allow_none=True, metadata={"description": "give it as `after`; null at the end"})


class CancelledOccasionSchema(CancellationSchema):
    """A cancellation as it is answered."""

    duplicate = fields.Boolean(required=True, metadata={"description": "this key had begun it before; nothing is cancelled anew"})
