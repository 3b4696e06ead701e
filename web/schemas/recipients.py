"""Recipients, consents and preferences on the wire. `app.desk.asked` reads and judges requests; this describes them."""

from __future__ import annotations

from marshmallow import RAISE, Schema, fields, validate

from app.desk.asked import ACTS, LOCALE
from models.people import CONSENT_KIND
from policy.words import Category, Channel
from web.schemas.fields import AnswerSchema, Instant, text

PREFERENCE_COUNT = 50
PAGE = 100


def _word(*words: str, required: bool = False, description: str = "") -> fields.String:
    """Make a field for one of a few words."""
    metadata = {"description": description} if description else {}
    return fields.String(required=required, allow_none=not required, validate=validate.OneOf(words), metadata=metadata)


class RecipientRequestSchema(Schema):
    """How a person is described from now on: all of it, so that what is left out is not known any more."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    sms = text(description="telephone number in international form", example="+12015550123")
    time_zone = text(description="IANA name", example="America/New_York")
    locale = fields.String(allow_none=True, validate=validate.Regexp(f"^{LOCALE.pattern}$"), metadata={"example": "en-US"})


class AddressSchema(AnswerSchema):
    """An address as it may be shown."""

    channel = fields.String(required=True)
    address = fields.String(required=True, metadata={"description": "masked but for its end", "example": "••••••••••23"})
    country = fields.String(required=True, allow_none=True)
    since = Instant(required=True)


class RecipientViewSchema(AnswerSchema):
    """A person as they stand."""

    ref = fields.String(required=True)
    version = fields.Integer(required=True)
    addresses = fields.List(fields.Nested(AddressSchema), required=True)
    time_zone = fields.String(required=True, allow_none=True)
    locale = fields.String(required=True, allow_none=True)
    changed_at = Instant(required=True)


class ConsentRequestSchema(Schema):
    """One act of consent, with its evidence."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    sms = text(description="the number that it was given for; absent: the recipient's stored one", example="+12015550123")
    channel = _word(*Channel, description="absent: sms")
    category = _word(*Category, description="absent: every category")
    act = _word(*ACTS, required=True)
    kind = fields.String(
        validate=validate.Regexp(CONSENT_KIND),
        allow_none=True,
        metadata={"description": "as policy documents name it, like express_written; of a withdrawal, absent: every kind"},
    )
    captured_at = Instant(allow_none=True, metadata={"description": "when the person said so; absent: now"})
    expires_at = Instant(allow_none=True, metadata={"description": "of a grant; needed for implied_ebr"})
    wording = text(description="the version of the words that they agreed to", example="web-2026-03")
    source = text(required=True, description="how it was captured", example="sign-up form")


class ConsentKeptSchema(AnswerSchema):
    """The act as it is kept."""

    id = fields.UUID(required=True)
    duplicate = fields.Boolean(required=True, metadata={"description": "exactly this was told before"})


class ConsentSchema(AnswerSchema):
    """One act of consent."""

    id = fields.UUID(required=True)
    channel = fields.String(required=True)
    category = fields.String(required=True, allow_none=True)
    act = fields.String(required=True)
    kind = fields.String(required=True, allow_none=True)
    captured_at = Instant(required=True)
    expires_at = Instant(required=True, allow_none=True)
    wording = fields.String(required=True, allow_none=True)
    source = fields.String(required=True)
    recorded_at = Instant(required=True)
    recorded_by = fields.String(required=True)


class ConsentQuerySchema(Schema):
    """A page of a person's acts."""

    class Meta:
        """A misspelt name would show another page."""

        unknown = RAISE

    after = fields.UUID(load_default=None, metadata={"description": "`next_cursor` of the page before"})
    limit = fields.Integer(load_default=PAGE, validate=validate.Range(1, PAGE))


class ConsentsSchema(AnswerSchema):
    """What was told of a person's addresses, the newest first."""

    items = fields.List(fields.Nested(ConsentSchema), required=True)
    next_cursor = fields.UUID(required=True, allow_none=True, metadata={"description": "null on the last page"})


class PreferenceRequestSchema(Schema):
    """One wish."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    channel = _word(*Channel, description="absent: sms")
    category = _word(*Category, description="absent: every category")
    wanted = fields.Boolean(required=True, truthy={True}, falsy={False})
    at = Instant(allow_none=True, metadata={"description": "when the person said so; absent: now"})


class PreferencesRequestSchema(Schema):
    """What a person asks for; what is not named stays as it is."""

    class Meta:
        """Nothing unknown is guessed at."""

        unknown = RAISE

    preferences = fields.List(
        fields.Nested(PreferenceRequestSchema), required=True, validate=validate.Length(min=1, max=PREFERENCE_COUNT)
    )


class PreferenceSchema(AnswerSchema):
    """A wish that stands."""

    channel = fields.String(required=True)
    category = fields.String(required=True, allow_none=True)
    wanted = fields.Boolean(required=True)
    at = Instant(required=True)


class PreferencesSchema(AnswerSchema):
    """What a person asks for, at the address where they are reached now."""

    items = fields.List(fields.Nested(PreferenceSchema), required=True)
