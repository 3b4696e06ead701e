"""Fields that several documents share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from marshmallow import EXCLUDE, Schema, fields, validate

from app.ledger.request import RFC_3339, TEXT_LENGTH

# As the one reader of requests has it: no control characters; half surrogate pairs are no JSON at all.
PRINTABLE: Final = r"^[^\u0000-\u001f\u007f]*$"
LINES: Final = r"^[^\u0000-\u0008\u000b-\u001f\u007f]*$"


def published(converter: object, field: fields.Field[Any], **_: object) -> dict[str, Any]:
    """Give apispec what a field says of itself beyond the keywords that apispec knows."""
    del converter
    said: dict[str, Any] = field.metadata.get("published", {})
    return said


class AnswerSchema(Schema):
    """What we answer: clients must expect that a later version says more."""

    class Meta:
        """Published as an open object."""

        unknown = EXCLUDE


class Instant(fields.AwareDateTime):
    """An RFC 3339 time, written in UTC."""

    def _serialize(self, value: datetime | None, attr: str | None, obj: Any, **kwargs: Any) -> str | None:  # noqa: ANN401 - marshmallow's
        del attr, obj, kwargs
        return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> datetime:  # noqa: ANN401 - marshmallow's
        # Its own reader takes more forms than we publish.
        if not isinstance(value, str) or not RFC_3339.fullmatch(value):
            raise self.make_error("invalid", input=value, obj_type=self.OBJ_TYPE)
        try:
            # In UTC at once: Postgres takes no zone of a whole day, and one can push the ends of the calendar out of it.
            return super()._deserialize(value, attr, data, **kwargs).astimezone(UTC)
        except OverflowError as error:
            raise self.make_error("invalid", input=value, obj_type=self.OBJ_TYPE) from error


class Flag(fields.Boolean):
    """True or false, and nothing that passes for them elsewhere."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **kwargs: Any) -> bool:  # noqa: ANN401 - marshmallow's
        del attr, data, kwargs
        if isinstance(value, bool):
            return value
        raise self.make_error("invalid", input=value)


def text(*, required: bool = False, description: str = "", example: str = "") -> fields.String:
    """Make a field for a short printable text."""
    metadata = {k: v for k, v in (("description", description), ("example", example)) if v}
    return fields.String(
        required=required,
        allow_none=not required,
        validate=[validate.Length(min=1, max=TEXT_LENGTH), validate.Regexp(PRINTABLE, error="must not hold control characters")],
        metadata=metadata,
    )
