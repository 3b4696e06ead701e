"""What an application asks: read one request strictly, from HTTP or the inlet alike, naming every mistake."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any, Final
from urllib.parse import quote

import orjson

from app.people.contacts import InvalidNumber, Number, read_number
from policy.words import Category, Channel
from policy.zones import find_zone

TEXT_LENGTH: Final = 200
VALUE_LENGTH: Final = 1000
ENTRY_COUNT: Final = 20
STAKE_MAX: Final = 1_000_000_000
INT_MAX: Final = 2**53  # what every JSON reader keeps exactly
BUSINESS_KEY_LENGTH: Final = 2000  # percent-encoded; Postgres indexes at most 2,704 bytes
RFC_3339: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?(?:Z|[+-][0-9]{2}:[0-9]{2})")
# The shape of an address in what is kept in clear; the audit looks for the same.
LOOKS_PERSONAL: Final = re.compile(r"(?:\+|%2[Bb])[0-9]{8,15}|[A-Za-z0-9._+-]+(?:@|%40)[A-Za-z0-9-]+\.[A-Za-z]{2,}")
# Controls, and halves of surrogate pairs, which are no text.
UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
UNPRINTABLE_IN_LINES: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
KEY: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
TEMPLATE: Final = re.compile(r"([a-z0-9][a-z0-9._-]{0,99})(?:@([1-9][0-9]{0,5}))?")
FIELDS: Final = frozenset(
    {
        "type", "subject", "recipient", "template", "data", "channels", "expires_at", "not_before",
        "category", "metadata", "stake", "key",
    }
)  # fmt: skip
RECIPIENT_FIELDS: Final = frozenset({"ref", "sms", "time_zone", "locale"})


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: a code from the catalogue, words, and a JSON pointer to the place."""

    code: str
    detail: str
    pointer: str = ""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """A request that is well formed; whether it can be accepted depends on the tenant's books."""

    type: str
    subject: str
    recipient_ref: str
    number: Number | None = field(repr=False)
    """None: where the recipient is reached by what is stored."""
    time_zone: str | None
    locale: str | None
    template_name: str
    template_version: int | None
    data: Mapping[str, Any] = field(repr=False)
    channels: tuple[Channel, ...]
    expires_at: datetime | None
    not_before: datetime | None
    category: Category | None
    metadata: Mapping[str, str]
    stake: Mapping[str, Any] | None
    given_key: str | None
    content: bytes = field(repr=False)
    """The request as sent, in canonical JSON, without its key."""

    @property
    def business_key(self) -> str:
        """The same fact for the same person: parts percent-encoded, so that none can reach into the next."""
        return _business_key(self.type, self.subject, self.recipient_ref)

    @property
    def key(self) -> str:
        """What the event is found again by."""
        return self.given_key if self.given_key is not None else self.business_key


class _Reader:
    """Reads fields of one request and collects what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def wrong(self, pointer: str, detail: str, code: str = "invalid_field") -> None:
        self.problems.append(Problem(code, detail, pointer))

    def fields(self, raw: Mapping[str, Any], known: frozenset[str], pointer: str = "") -> None:
        for name in sorted(set(raw) - known):
            self.wrong(f"{pointer}/{_named(name)}", "is not a field of this request", "unknown_field")

    def mapping(self, raw: Mapping[str, Any], name: str, *, required: bool = False) -> Mapping[str, Any]:
        value = raw.get(name)
        if isinstance(value, dict):
            return value
        if value is not None or required:
            self.wrong(f"/{name}", "must be an object")
        return {}

    def text(self, raw: Mapping[str, Any], name: str, pointer: str, *, required: bool = False) -> str | None:
        value = raw.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not 1 <= len(value) <= TEXT_LENGTH:
            self.wrong(pointer, f"must be a text of 1 to {TEXT_LENGTH} characters")
            return None
        if not _is_printable(value):
            self.wrong(pointer, "must not hold control characters or half of a surrogate pair")
            return None
        if LOOKS_PERSONAL.search(value):
            self.wrong(pointer, "must not hold an address: it is kept in clear", "personal_value")
            return None
        return value

    def instant(self, raw: Mapping[str, Any], name: str) -> datetime | None:
        value = raw.get(name)
        if value is None:
            return None
        try:
            # In UTC at once: a zone can push the ends of the calendar out of it.
            instant = (
                datetime.fromisoformat(value).astimezone(UTC) if isinstance(value, str) and RFC_3339.fullmatch(value) else None
            )
        except (ValueError, OverflowError):
            instant = None
        if instant is None:
            self.wrong(f"/{name}", "must be an RFC 3339 time with a zone, like 2026-12-01T18:00:00Z")
            return None
        return instant

    def entries(self, values: Mapping[str, Any], pointer: str, *, length: int, kinds: tuple[type, ...]) -> None:
        if len(values) > ENTRY_COUNT:
            self.wrong(pointer, f"must not have more than {ENTRY_COUNT} entries")
        for name, value in values.items():
            place = f"{pointer}/{_named(name)}"
            if not 1 <= len(name) <= TEXT_LENGTH or not _is_printable(name):
                self.wrong(place, f"must be named by 1 to {TEXT_LENGTH} printable characters")
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                self.wrong(place, "must be " + " or ".join(kind.__name__ for kind in kinds))
            elif isinstance(value, int) and abs(value) > INT_MAX:
                self.wrong(place, f"must lie between -{INT_MAX} and {INT_MAX}")
            elif isinstance(value, float) and not isfinite(value):  # jsonb keeps 1e400, JSON as we seal it does not
                self.wrong(place, "must be a finite number")
            elif isinstance(value, str) and (len(value) > length or not _is_printable(value, lines=True)):
                self.wrong(place, f"must be at most {length} characters, without control characters or half surrogate pairs")

    def impersonal(self, values: Mapping[str, Any], pointer: str) -> None:
        for name, value in values.items():
            if LOOKS_PERSONAL.search(f"{name}\n{value}"):
                self.wrong(f"{pointer}/{_named(name)}", "must not hold an address: it is kept in clear", "personal_value")


def read_request(raw: object, *, header_key: str | None = None) -> NewEvent | list[Problem]:
    """Read one request; every mistake comes back with a pointer, and nothing is guessed."""
    if not isinstance(raw, dict):
        return [Problem("invalid_field", "must be an object")]
    reader = _Reader()
    reader.fields(raw, FIELDS)
    recipient = reader.mapping(raw, "recipient", required=True)
    reader.fields(recipient, RECIPIENT_FIELDS, "/recipient")
    data, metadata = reader.mapping(raw, "data"), reader.mapping(raw, "metadata")
    reader.entries(data, "/data", length=VALUE_LENGTH, kinds=(str, int, float, bool))
    reader.entries(metadata, "/metadata", length=TEXT_LENGTH, kinds=(str,))
    reader.impersonal(metadata, "/metadata")
    template = _read_template(reader, raw)
    number = _read_number(reader, recipient)
    event_type = reader.text(raw, "type", "/type", required=True)
    subject = reader.text(raw, "subject", "/subject", required=True)
    ref = reader.text(recipient, "ref", "/recipient/ref", required=True)
    channels = _read_channels(reader, raw)
    category = _read_category(reader, raw)
    zone = _read_zone(reader, recipient)
    stake = _read_stake(reader, raw)
    key = _read_key(reader, raw, header_key)
    expires_at, not_before = reader.instant(raw, "expires_at"), reader.instant(raw, "not_before")
    locale = reader.text(recipient, "locale", "/recipient/locale")
    if event_type and subject and ref and len(_business_key(event_type, subject, ref)) > BUSINESS_KEY_LENGTH:
        reader.wrong("/subject", f"makes a business key of more than {BUSINESS_KEY_LENGTH} characters with type and ref")
    if reader.problems or event_type is None or subject is None or ref is None:
        return reader.problems
    return NewEvent(
        type=event_type,
        subject=subject,
        recipient_ref=ref,
        number=number,
        time_zone=zone,
        locale=locale,
        template_name=template[0],
        template_version=template[1],
        data=data,
        channels=channels,
        expires_at=expires_at,
        not_before=not_before,
        category=category,
        metadata=metadata,
        stake=stake,
        given_key=key,
        content=orjson.dumps({k: v for k, v in raw.items() if k != "key"}, option=orjson.OPT_SORT_KEYS),
    )


def read_key(text: str) -> str | None:
    """Read a caller's key, its optional quotes stripped; None when it is not 1 to 255 printable ASCII characters."""
    stripped = text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
    return stripped if KEY.fullmatch(stripped) else None


def _read_key(reader: _Reader, raw: Mapping[str, Any], header_key: str | None) -> str | None:
    found = {}
    for place, value in (("/key", raw.get("key")), ("#Idempotency-Key", header_key)):
        if value is None:
            continue
        key = read_key(value) if isinstance(value, str) else None
        if key is None:
            reader.wrong(place, "must be 1 to 255 printable ASCII characters", "invalid_key")
        elif LOOKS_PERSONAL.search(key):
            reader.wrong(place, "must not hold an address: it is kept in clear", "personal_value")
        else:
            found[key] = place
    if len(found) > 1:
        reader.wrong("/key", "differs from the Idempotency-Key header", "invalid_key")
    return next(iter(found), None)


def _read_number(reader: _Reader, recipient: Mapping[str, Any]) -> Number | None:
    text = recipient.get("sms")
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > TEXT_LENGTH or not _is_printable(text):
        reader.wrong(
            "/recipient/sms", "must be a telephone number with the plus and country code, like +12015550123", "invalid_number"
        )
        return None
    try:
        return read_number(text)
    except InvalidNumber as error:
        reader.wrong("/recipient/sms", str(error), "invalid_number")
        return None


def _read_template(reader: _Reader, raw: Mapping[str, Any]) -> tuple[str, int | None]:
    value = raw.get("template")
    match = TEMPLATE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        reader.wrong("/template", "must be a template's name, or name@version")
        return "", None
    return match[1], int(match[2]) if match[2] else None


def _read_channels(reader: _Reader, raw: Mapping[str, Any]) -> tuple[Channel, ...]:
    value = raw.get("channels", ["sms"])
    if not isinstance(value, list) or not value or any(v not in set(Channel) for v in value if isinstance(v, str)):
        reader.wrong("/channels", "must be a list of channels: " + ", ".join(Channel))
        return ()
    if not all(isinstance(v, str) for v in value) or len(set(value)) != len(value):
        reader.wrong("/channels", "must name each channel once")
        return ()
    return tuple(sorted(Channel(v) for v in value))


def _read_category(reader: _Reader, raw: Mapping[str, Any]) -> Category | None:
    value = raw.get("category")
    if value is None:
        return None
    if not isinstance(value, str) or value not in set(Category):
        reader.wrong("/category", "must be one of " + ", ".join(Category))
        return None
    return Category(value)


def _read_zone(reader: _Reader, recipient: Mapping[str, Any]) -> str | None:
    value = recipient.get("time_zone")
    if value is None:
        return None
    if not isinstance(value, str) or find_zone(value) is None:
        reader.wrong("/recipient/time_zone", "must be an IANA time zone, like America/New_York")
        return None
    return value


def _read_stake(reader: _Reader, raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if raw.get("stake") is None:
        return None
    stake = reader.mapping(raw, "stake")
    count = stake.get("count")
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= STAKE_MAX:
        reader.wrong("/stake/count", f"must be a whole number from 0 to {STAKE_MAX}")
    reader.fields(stake, frozenset({"count", "unit"}), "/stake")
    reader.text(stake, "unit", "/stake/unit", required=True)
    return stake


@lru_cache(maxsize=1024)  # of one request it is asked many times
def _business_key(*parts: str) -> str:
    return "/".join(quote(part, safe="") for part in parts)


def _named(name: str) -> str:
    """Name a field in a pointer, unless the name is an address: errors are kept in clear."""
    return "?" if LOOKS_PERSONAL.search(name) else _escaped(name)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1").encode("ascii", "backslashreplace").decode()


def _is_printable(text: str, *, lines: bool = False) -> bool:
    return (UNPRINTABLE_IN_LINES if lines else UNPRINTABLE).search(text) is None
