"""Pauses on the wire."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from policy.words import Category, Lane
from web.schemas.fields import AnswerSchema, Instant, text


class ScopeSchema(Schema):
    """What to hold, or to let go; nothing named means everything of the tenant."""

    class Meta:
        """A misspelt name would pause everything."""

        unknown = RAISE

    route = text(description="a route's name")
    lane = fields.String(allow_none=True, validate=validate.OneOf([*Lane]))
    category = fields.String(allow_none=True, validate=validate.OneOf([*Category]))
    country = fields.String(
        allow_none=True, validate=validate.Regexp(r"[A-Z]{2}\Z"), metadata={"description": "of the numbers: two capital letters"}
    )
    reason = text(required=True, description="why; it is kept")


class PauseSchema(AnswerSchema):
    """A running pause."""

    id = fields.UUID(required=True)
    route = fields.String(required=True, allow_none=True)
    lane = fields.String(required=True, allow_none=True)
    category = fields.String(required=True, allow_none=True)
    country = fields.String(required=True, allow_none=True)
    cause = fields.String(required=True)
    started_by = fields.String(required=True)
    started_at = Instant(required=True)


class PausesSchema(AnswerSchema):
    """What is paused."""

    items = fields.List(fields.Nested(PauseSchema), required=True)


class PausedSchema(AnswerSchema):
    """The pause that was made."""

    id = fields.UUID(required=True)


class ResumedSchema(AnswerSchema):
    """How many pauses ended."""

    ended = fields.Integer(required=True)
