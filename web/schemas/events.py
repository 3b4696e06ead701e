"""Events on the wire. `app.ledger.request` reads and judges requests, for HTTP and the inlet alike; this describes them."""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields, post_dump, validate

from app.ledger.request import ENTRY_COUNT, INT_MAX, STAKE_MAX, TEMPLATE, TEXT_LENGTH, VALUE_LENGTH
from policy.states import PublicState
from policy.words import Category, Channel
from web.schemas.fields import LINES, PRINTABLE, AnswerSchema, Instant, text

BATCH_COUNT = 1000

NAMES = {"minLength": 1, "maxLength": TEXT_LENGTH, "pattern": PRINTABLE}
STRING = {"type": "string", "maxLength": VALUE_LENGTH, "pattern": LINES}
VALUES = {
    "anyOf": [STRING, {"type": "integer", "minimum": -INT_MAX, "maximum": INT_MAX}, {"type": "number"}, {"type": "boolean"}]
}
DATA = {"maxProperties": ENTRY_COUNT, "propertyNames": NAMES, "additionalProperties": VALUES}
METADATA = {
    "maxProperties": ENTRY_COUNT,
    "propertyNames": NAMES,
    "additionalProperties": {"type": "string", "maxLength": TEXT_LENGTH, "pattern": LINES},
}


class RecipientSchema(Schema):
    """Who is to be reached."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    ref = text(required=True, description="your own name for the person; no personal data", example="m-1842")
    sms = text(
        description="telephone number in international form, for this event; absent: the stored one", example="+12015550123"
    )
    time_zone = text(description="IANA name, for this event; absent: the stored one", example="America/New_York")
    locale = text(description="for this event; absent: the stored one", example="en-US")


class StakeSchema(Schema):
    """What is at risk, for the operator's views."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    count = fields.Integer(required=True, strict=True, validate=validate.Range(0, STAKE_MAX))
    unit = text(required=True, example="seat")


class EventRequestSchema(Schema):
    """What happened, and whom to tell. An object that gives a name twice is refused."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    type = text(required=True, example="class.opening")
    subject = text(
        required=True, description="the occasion: a second one for the same person is another subject", example="c-9081"
    )
    recipient = fields.Nested(RecipientSchema, required=True)
    template = fields.String(
        required=True,
        validate=validate.Regexp(f"^{TEMPLATE.pattern}$"),
        metadata={"description": "a name means the published version; name@n pins one", "example": "class-opening"},
    )
    data = fields.Dict(
        allow_none=True,
        metadata={"published": DATA, "description": "the template's variables", "example": {"class": "Spin 18:00"}},
    )
    channels = fields.List(
        fields.String(validate=validate.OneOf(list(Channel))),
        validate=validate.Length(min=1),
        metadata={"published": {"uniqueItems": True, "default": ["sms"]}},
    )
    expires_at = Instant(allow_none=True, metadata={"description": "after this nobody is contacted; with a zone"})
    not_before = Instant(allow_none=True, metadata={"description": "before this nobody is contacted; with a zone"})
    category = fields.String(
        allow_none=True, validate=validate.OneOf([*Category]), metadata={"description": "must be the template's"}
    )
    metadata = fields.Dict(
        allow_none=True, metadata={"published": METADATA, "description": "short texts of yours; no personal data"}
    )
    stake = fields.Nested(StakeSchema, allow_none=True)
    key = fields.String(
        allow_none=True,
        validate=[validate.Length(min=1, max=257), validate.Regexp(r"^[\x20-\x7e]*$")],
        metadata={"description": "1 to 255 printable ASCII characters, or the Idempotency-Key header; absent: the business key"},
    )


class BatchRequestSchema(Schema):
    """Up to a thousand events, each on its own: not atomic."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    events = fields.List(fields.Nested(EventRequestSchema), required=True, validate=validate.Length(min=1, max=BATCH_COUNT))


class _SaysWhatHolds(AnswerSchema):
    """Leaves out what is only worth a word when it holds."""

    @post_dump
    def _leave_out(self, dumped: dict[str, Any], **_: object) -> dict[str, Any]:
        return {k: v for k, v in dumped.items() if k not in {"joined", "close_request"} or v}


class IntentSchema(_SaysWhatHolds):
    """One channel of an event."""

    intent_id = fields.UUID(required=True)
    channel = fields.String(required=True)
    state = fields.String(required=True, validate=validate.OneOf(list(PublicState)))
    reason = fields.String(required=True, allow_none=True, metadata={"description": "from /v1/reasons"})
    next_at = Instant(required=True, allow_none=True)
    joined = fields.Boolean(metadata={"description": "the event joined an earlier one's intent and contacts nobody itself"})
    close_request = fields.String(metadata={"description": "asked after handoff: no new attempt follows"})


class AcceptedSchema(AnswerSchema):
    """An accepted event."""

    event_id = fields.UUID(required=True)
    key = fields.String(required=True)
    accepted = fields.Constant(constant=True, required=True, metadata={"type": "boolean"})
    duplicate = fields.Boolean(required=True)
    template = fields.String(required=True)
    category = fields.String(required=True)
    policy = fields.String(required=True, allow_none=True)
    intents = fields.List(fields.Nested(IntentSchema), required=True)


class EventSchema(AcceptedSchema):
    """An event and where its channels stand."""

    class Meta(AnswerSchema.Meta):
        """Whether a posting repeated it is no part of the event."""

        exclude = ("duplicate",)

    type = fields.String(required=True)
    subject = fields.String(required=True)
    recipient = fields.String(required=True, attribute="recipient_ref")
    accepted_at = Instant(required=True)
    expires_at = Instant(required=True)


class CancelledIntentSchema(IntentSchema):
    """One channel of a cancelled event."""

    handed_off = fields.Boolean(
        required=True, metadata={"description": "it had left already: a text cannot be recalled, its state follows what is heard"}
    )


class CancelledSchema(EventSchema):
    """An event after its cancel, and what had been handed off before it."""

    intents = fields.List(fields.Nested(CancelledIntentSchema), required=True)


class ResultsSchema(AnswerSchema):
    """What became of each event of a batch, in order."""

    results = fields.List(
        fields.Dict(),
        required=True,
        metadata={
            "description": "each with its `status`: 202 or 200 and the event as accepted, or 422 and the problem",
            "published": {
                "items": {"type": "object", "required": ["status"], "properties": {"status": {"enum": [200, 202, 422]}}}
            },
        },
    )
