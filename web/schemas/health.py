"""Health on the wire."""

from __future__ import annotations

from marshmallow import fields

from web.schemas.fields import AnswerSchema


class LiveSchema(AnswerSchema):
    """The process answers."""

    live = fields.Constant(constant=True, required=True, metadata={"type": "boolean"})


class ReadySchema(AnswerSchema):
    """Everything that it needs answers."""

    ready = fields.Constant(constant=True, required=True, metadata={"type": "boolean"})
