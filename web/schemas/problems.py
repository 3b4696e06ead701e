"""Problems on the wire: RFC 9457 with a code."""

from __future__ import annotations

from marshmallow import fields

from web.schemas.fields import AnswerSchema


class MistakeSchema(AnswerSchema):
    """One mistake and its place."""

    code = fields.String(required=True)
    detail = fields.String(required=True)
    pointer = fields.String(
        required=True,
        metadata={"description": "a JSON pointer into the body; `?name` in the query, `#name` a header, `{name}` in the path"},
    )


class ProblemSchema(AnswerSchema):
    """What every error answers with."""

    type = fields.String(required=True)
    title = fields.String(required=True)
    status = fields.Integer(required=True)
    detail = fields.String(required=True)
    code = fields.String(required=True, metadata={"description": "from the catalogue at /docs"})
    errors = fields.List(fields.Nested(MistakeSchema), required=True)
    request_id = fields.String(required=True)
