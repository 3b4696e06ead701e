"""Suppressions on the wire. `app.desk.asked` reads and judges what is told; this describes it."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from app.desk.asked import SUPPRESSION_ACTS
from policy.words import Category, Channel, SuppressedBy
from web.schemas.fields import AnswerSchema, Flag, Instant, text

PAGE = 100
LIFT_COUNT = 100


def _word(*words: str, description: str = "") -> fields.String:
    """Make a field for one of a few words."""
    metadata = {"description": description} if description else {}
    return fields.String(allow_none=True, validate=validate.OneOf(words), metadata=metadata)


class SuppressionRequestSchema(Schema):
    """Somebody is not to be contacted, and why."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    sms = text(description="this number alone; absent: every number that is known of the recipient", example="+12015550123")
    channel = _word(*Channel, description="absent: sms")
    category = _word(*Category, description="absent: every category")
    everything = Flag(
        metadata={"description": "also what the policy lets an opt-out by text reach only by its name; with no category"},
    )
    source = _word(*SuppressedBy, description="how it was heard; absent: api")
    reason = text(required=True, description="why; it is kept in clear", example="asked by telephone")


class NumberSuppressionRequestSchema(SuppressionRequestSchema):
    """A number is not to be contacted, whoever's it is, and why."""

    sms = text(required=True, example="+12015550123")


class SuppressedSchema(AnswerSchema):
    """The suppressions that say so, one for each number."""

    suppressions = fields.List(fields.UUID(), required=True)
    duplicate = fields.Boolean(required=True, metadata={"description": "they stood before, from the same source"})


class CauseSchema(AnswerSchema):
    """What an act came from."""

    kind = fields.String(
        required=True,
        validate=validate.OneOf(["inbound", "report", "action"]),
        metadata={"description": "a text that came in, what a carrier said of an attempt, or what somebody did"},
    )
    id = fields.UUID(required=True)
    attempt_id = fields.UUID(required=True, allow_none=True, metadata={"description": "of a report: what it was about"})
    error_code = fields.String(required=True, allow_none=True, metadata={"description": "of a report: the carrier's own code"})


class ActSchema(AnswerSchema):
    """One suppression, or one lift."""

    id = fields.UUID(required=True)
    act = fields.String(required=True, validate=validate.OneOf(SUPPRESSION_ACTS))
    channel = fields.String(required=True)
    address = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "masked but for its end; null when the request named it", "example": "••••••••••23"},
    )
    category = fields.String(required=True, allow_none=True)
    everything = fields.Boolean(required=True)
    source = fields.String(required=True, validate=validate.OneOf([*SuppressedBy]))
    at = Instant(required=True, metadata={"description": "when it was said"})
    recorded_at = Instant(required=True, metadata={"description": "since when it counts"})
    recorded_by = fields.String(required=True)
    reason = fields.String(required=True, allow_none=True)
    cause = fields.Nested(CauseSchema, required=True, allow_none=True)
    stands = fields.Boolean(required=True)
    lifted_by = fields.UUID(required=True, allow_none=True, metadata={"description": "the lift that names it"})
    lifted_at = Instant(required=True, allow_none=True)
    lifts = fields.List(fields.UUID(), required=True, metadata={"description": "of a lift: the suppressions that it names"})


class ActsQuerySchema(Schema):
    """A page of what was said of a person's numbers."""

    class Meta:
        """A misspelt name would show another page."""

        unknown = RAISE

    standing = fields.Boolean(
        load_default=False,
        truthy={"true"},
        falsy={"false"},
        metadata={"description": "true: only the suppressions that stand"},
    )
    after = fields.UUID(load_default=None, metadata={"description": "`next_cursor` of the page before"})
    limit = fields.Integer(load_default=PAGE, validate=validate.Range(1, PAGE))


class SearchRequestSchema(Schema):
    """Whose suppressions are looked for: a number does not stand in a URL."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    sms = text(required=True, example="+12015550123")
    standing = Flag(load_default=False, metadata={"description": "true: only those that stand"})
    after = fields.UUID(load_default=None, allow_none=True, metadata={"description": "`next_cursor` of the page before"})
    limit = fields.Integer(load_default=PAGE, strict=True, validate=validate.Range(1, PAGE))


class ActsSchema(AnswerSchema):
    """What was said of a person's numbers, the newest first."""

    items = fields.List(fields.Nested(ActSchema), required=True)
    next_cursor = fields.UUID(required=True, allow_none=True, metadata={"description": "null on the last page"})


class LiftRequestSchema(Schema):
    """Which suppressions are lifted, each by its id, and why."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    suppressions = fields.List(fields.UUID(), required=True, validate=validate.Length(min=1, max=LIFT_COUNT))
    reason = text(required=True, description="why; it is kept in clear", example="asked to be contacted again, by telephone")


class LiftedSchema(AnswerSchema):
    """What was lifted now, and what had been lifted before."""

    lifted = fields.List(fields.UUID(), required=True)
    lifted_before = fields.List(fields.UUID(), required=True)
