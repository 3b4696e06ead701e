"""What is told of people: read one recipient, consent or preference strictly, from HTTP or a file alike, naming every mistake."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from app.ledger.request import LOOKS_PERSONAL, RFC_3339, TEXT_LENGTH, Problem
from app.people.consents import NewConsent
from app.people.contacts import InvalidNumber, Number, read_number
from app.people.persons import Addressee, NotKept
from app.people.preferences import NewPreference
from app.people.recipients import NewRecipient
from app.people.suppressions import NewSuppression, Whom, read_fingerprint
from models.people import CONSENT_KIND
from policy.words import Category, Channel, SuppressedBy
from policy.zones import find_zone

LOCALE: Final = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8}){0,4}")
UNPRINTABLE: Final = re.compile("[\x00-\x1f\x7f\ud800-\udfff]")
ACTS: Final = ("grant", "withdraw")
RECIPIENT_FIELDS: Final = ("sms", "time_zone", "locale")
CONSENT_FIELDS: Final = ("sms", "channel", "category", "act", "kind", "captured_at", "expires_at", "wording", "source")
PREFERENCE_FIELDS: Final = ("channel", "category", "wanted", "at")

SUPPRESSION_ACTS: Final = ("suppress", "lift")
SUPPRESSION_FIELDS: Final = ("sms", "channel", "category", "everything", "source", "reason")
LISTED_FIELDS: Final = ("sms", "fingerprint", "channel", "category", "everything", "act", "source", "at", "reason")

ReadNumber = Callable[[str], Number]

WHY: Final[Mapping[NotKept, tuple[str, str, str]]] = {
    NotKept.NO_ADDRESS: ("no_address", "no address of this channel is stored for the recipient", "sms"),
    NotKept.ERASED: ("recipient_erased", "this recipient was erased", "ref"),
    NotKept.IN_THE_FUTURE: ("invalid_field", "lies in the future", "captured_at"),
    NotKept.ENDED_BEFORE: ("invalid_field", "must lie after captured_at", "expires_at"),
    NotKept.NOTHING_STANDS: ("invalid_field", "nothing stands that this source said before, and that this could lift", "act"),
}
"""Why something was not kept -> a code of the catalogue, words, and the field it is about."""


def problem_of(why: NotKept, *, pointer: str = "", instant: str = "captured_at") -> Problem:
    """Say why something was not kept, in the words of problems."""
    code, detail, name = WHY[why]
    return Problem(code, detail, f"{pointer}/{instant if name == 'captured_at' else name}")


@dataclass(slots=True)
class _Reader:
    """Reads the fields of one document and collects what is wrong with them."""

    raw: Mapping[str, Any]
    pointer: str = ""
    number_of: ReadNumber = read_number
    problems: list[Problem] = field(default_factory=list)

    def wrong(self, name: str, detail: str, code: str = "invalid_field") -> None:
        self.problems.append(Problem(code, detail, f"{self.pointer}/{name}"))

    def only(self, known: tuple[str, ...]) -> None:
        for name in sorted(set(self.raw) - set(known)):
            shown = "?" if LOOKS_PERSONAL.search(name) else name.replace("~", "~0").replace("/", "~1")
            self.wrong(shown.encode("ascii", "backslashreplace").decode(), "is not a field of this request", "unknown_field")

    def text(self, name: str, *, required: bool = False) -> str | None:
        value = self.raw.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or not 1 <= len(value) <= TEXT_LENGTH:
            self.wrong(name, f"must be a text of 1 to {TEXT_LENGTH} characters")
        elif UNPRINTABLE.search(value):
            self.wrong(name, "must not hold control characters or half of a surrogate pair")
        elif LOOKS_PERSONAL.search(value):
            self.wrong(name, "must not hold an address: it is kept in clear", "personal_value")
        else:
            return value
        return None

    def word(self, name: str, words: tuple[str, ...], *, required: bool = False) -> str | None:
        value = self.raw.get(name)
        if value is None and not required:
            return None
        if not isinstance(value, str) or value not in words:
            self.wrong(name, "must be one of " + ", ".join(words))
            return None
        return value

    def kind(self, *, required: bool) -> str | None:
        value = self.raw.get("kind")
        if value is None and not required:
            return None
        if not isinstance(value, str) or re.fullmatch(CONSENT_KIND, value) is None:
            self.wrong("kind", "must be a word of small letters, digits and _, as policy documents name it, like express_written")
            return None
        return value

    def instant(self, name: str, *, required: bool = False) -> datetime | None:
        value = self.raw.get(name)
        if value is None and not required:
            return None
        try:
            if isinstance(value, str) and RFC_3339.fullmatch(value):
                return datetime.fromisoformat(value).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        self.wrong(name, "must be an RFC 3339 time with a zone, like 2026-12-01T18:00:00Z")
        return None

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        value = self.raw.get(name, default)
        if not isinstance(value, bool):
            self.wrong(name, "must be true or false")
            return False
        return value

    def number(self, name: str) -> Number | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > TEXT_LENGTH or UNPRINTABLE.search(value):
            self.wrong(name, "must be a telephone number", "invalid_number")
            return None
        try:
            return self.number_of(value)
        except InvalidNumber as error:
            self.wrong(name, str(error), "invalid_number")
            return None

    def fingerprint(self, name: str) -> bytes | None:
        value = self.raw.get(name)
        if value is None:
            return None
        read = read_fingerprint(value) if isinstance(value, str) else None
        if read is None:
            self.wrong(name, "must be a fingerprint of this Daybook, as an export writes it")
        return read

    def zone(self, name: str) -> str | None:
        value = self.raw.get(name)
        if value is not None and (not isinstance(value, str) or find_zone(value) is None):
            self.wrong(name, "must be an IANA time zone, like America/New_York")
            return None
        return value

    def locale(self, name: str) -> str | None:
        value = self.raw.get(name)
        if value is not None and (not isinstance(value, str) or LOCALE.fullmatch(value) is None):
            self.wrong(name, "must be a language tag, like en-US")
            return None
        return value


def read_ref(text: object) -> str | list[Problem]:
    """Read a recipient's ref, which is kept in clear."""
    reader = _Reader({"ref": text})
    ref = reader.text("ref", required=True)
    return reader.problems if ref is None else ref


def read_recipient_of(raw: object, *, ref: str, number_of: ReadNumber = read_number) -> NewRecipient | list[Problem]:
    """Read how a person is described: all of it, so that what is not there is not known any more."""
    if not isinstance(raw, dict):
        return [Problem("invalid_field", "must be an object")]
    reader = _Reader(raw, number_of=number_of)
    reader.only(RECIPIENT_FIELDS)
    number, zone, locale = reader.number("sms"), reader.zone("time_zone"), reader.locale("locale")
    return reader.problems or NewRecipient(ref, number, zone, locale)


def read_consent_of(
    raw: object, *, ref: str, dated: bool = False, number_of: ReadNumber = read_number
) -> NewConsent | list[Problem]:
    """Read one act of consent; `dated`: it must say when it was captured, as what comes in files must."""
    if not isinstance(raw, dict):
        return [Problem("invalid_field", "must be an object")]
    reader = _Reader(raw, number_of=number_of)
    reader.only(CONSENT_FIELDS)
    about = Addressee(ref, _channel(reader), reader.number("sms"))
    category = reader.word("category", tuple(Category))
    act = reader.word("act", ACTS, required=True)
    kind = reader.kind(required=act == "grant")
    captured_at = reader.instant("captured_at", required=dated)
    expires_at, wording = reader.instant("expires_at"), reader.text("wording")
    source = reader.text("source", required=True)
    if act == "withdraw" and expires_at is not None:
        reader.wrong("expires_at", "a withdrawal does not expire")
    if act == "grant" and kind == "implied_ebr" and expires_at is None and "expires_at" not in _wrong(reader):
        reader.wrong("expires_at", "is needed: what follows from business done ends some time after it")
    if expires_at is not None and captured_at is not None and expires_at <= captured_at:
        reader.wrong("expires_at", "must lie after captured_at")
    if reader.problems or act is None or source is None:
        return reader.problems
    return NewConsent(about, category, act, kind, captured_at, expires_at, wording, source)


def read_preference_of(
    raw: object, *, ref: str, pointer: str = "", dated: bool = False, number_of: ReadNumber = read_number
) -> NewPreference | list[Problem]:
    """Read one preference; from a file it may name the number, and must say when."""
    if not isinstance(raw, dict):
        return [Problem("invalid_field", "must be an object", pointer)]
    reader = _Reader(raw, pointer, number_of)
    reader.only((*PREFERENCE_FIELDS, "sms") if dated else PREFERENCE_FIELDS)
    about = Addressee(ref, _channel(reader), reader.number("sms"))
    category, wanted, at = reader.word("category", tuple(Category)), reader.flag("wanted"), reader.instant("at", required=dated)
    return reader.problems or NewPreference(about, category, wanted, at)


def read_suppression_of(raw: object, *, ref: str | None) -> NewSuppression | list[Problem]:
    """Read that somebody is not to be contacted, and why: the person, or the number that it names."""
    if not isinstance(raw, dict):
        return [Problem("invalid_field", "must be an object")]
    reader = _Reader(raw)
    reader.only(SUPPRESSION_FIELDS)
    about = Whom(_channel(reader), ref, reader.number("sms"))
    if ref is None and raw.get("sms") is None:
        reader.wrong("sms", "is needed: this names nobody")
    category, everything = _reach(reader)
    source, reason = reader.word("source", tuple(SuppressedBy)) or SuppressedBy.API, reader.text("reason", required=True)
    return reader.problems or NewSuppression(about, category, everything, "suppress", source, None, reason)


def read_listed_of(
    raw: Mapping[str, object], *, ref: str | None, number_of: ReadNumber = read_number
) -> NewSuppression | list[Problem]:
    """Read one line of a suppression list, which says when and by whom it was said."""
    reader = _Reader(raw, number_of=number_of)
    reader.only(LISTED_FIELDS)
    about = Whom(_channel(reader), ref, reader.number("sms"), reader.fingerprint("fingerprint"))
    named = [name for name in ("sms", "fingerprint") if raw.get(name) is not None]
    if ref is None and not named:
        reader.wrong("sms", "is needed, or a ref: this names nobody")
    if len(named) > 1:
        reader.wrong("fingerprint", "stands for an address, and cannot stand beside one")
    act = reader.word("act", SUPPRESSION_ACTS) or "suppress"
    category, everything = _reach(reader)
    if act == "lift" and everything:
        reader.wrong("everything", "a lift takes back what was said, however far that reached")
    source, at = reader.word("source", tuple(SuppressedBy), required=True), reader.instant("at", required=True)
    reason = reader.text("reason")
    if reader.problems or source is None:
        return reader.problems
    return NewSuppression(about, category, everything, act, source, at, reason)


def _reach(reader: _Reader) -> tuple[str | None, bool]:
    category, everything = reader.word("category", tuple(Category)), reader.flag("everything", default=False)
    if everything and category is not None:
        reader.wrong("everything", "covers every category, so it cannot name one")
    return category, everything


def _channel(reader: _Reader) -> str:
    return reader.word("channel", tuple(Channel)) or Channel.SMS


def _wrong(reader: _Reader) -> set[str]:
    return {problem.pointer.rpartition("/")[2] for problem in reader.problems}
