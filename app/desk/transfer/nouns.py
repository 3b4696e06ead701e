"""What can be transferred: the columns of each noun, how a line of it is read, kept, found again and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol
from uuid import UUID

from sqlalchemy.orm import Session

from app.desk.asked import (
    CONSENT_FIELDS,
    LISTED_FIELDS,
    PREFERENCE_FIELDS,
    RECIPIENT_FIELDS,
    ReadNumber,
    read_consent_of,
    read_listed_of,
    read_preference_of,
    read_recipient_of,
)
from app.ledger.request import Problem
from app.people.consents import NewConsent, record_consents
from app.people.evidence import Kept
from app.people.persons import NotKept
from app.people.preferences import NewPreference, record_preferences
from app.people.recipients import NewRecipient, Put, put_recipients
from app.people.suppress import STANDS
from app.people.suppressions import NewSuppression, Told, record_suppressions

Item = NewRecipient | NewConsent | NewPreference | NewSuppression
Result = Kept | Put | Told | NotKept

# Which contact a row hangs on is known from the row itself; whether it still opens, from the person's key.
# What commits while an export runs may be in it or not.
OPENED = """
JOIN contact k ON k.id = v.contact_id JOIN person_key p ON p.id = k.person_key_id
WHERE v.tenant_id = %(tenant)s
  AND (%(after)s::uuid IS NULL OR v.id > %(after)s::uuid)
ORDER BY v.id LIMIT %(limit)s
"""

CONSENTS_PAGE = f"""
SELECT v.id AS row_id, v.recipient_ref AS ref, v.channel, v.category, v.act, v.kind, v.captured_at,
       v.expires_at, v.wording, v.source, k.sealed_address, p.id AS key_id, p.wrapped_key
FROM consent v {OPENED}
"""  # noqa: S608 - put together from the constants above

PREFERENCES_PAGE = f"""
SELECT v.id AS row_id, v.recipient_ref AS ref, v.channel, v.category, v.wanted, v.at,
       k.sealed_address, p.id AS key_id, p.wrapped_key
FROM preference v {OPENED}
"""  # noqa: S608 - put together from the constants above

# What stands, whoever said it. An address of somebody who is no recipient, or was erased, is not kept in clear: its
# fingerprint goes out instead, for a list that left such people out would have them contacted elsewhere.
SUPPRESSIONS_PAGE = f"""
SELECT s.id AS row_id, k.recipient_ref AS ref, s.channel, s.category, s.everything, s.act, s.source,
       coalesce(s.told_at, s.at) AS at, coalesce(s.reason, nullif(d.reason, '')) AS reason,
       CASE WHEN k.sealed_address IS NULL THEN s.hash_key_id || ':' || encode(s.address_hash, 'hex') END AS fingerprint,
       k.sealed_address, k.key_id, k.wrapped_key
FROM suppression s LEFT JOIN operator_action d ON d.id = s.cause_id
LEFT JOIN LATERAL (
    SELECT c.recipient_ref, c.sealed_address, p.id AS key_id, p.wrapped_key
    FROM contact c JOIN person_key p ON p.id = c.person_key_id
    WHERE c.tenant_id = s.tenant_id AND c.address_hash = s.address_hash AND c.channel = s.channel AND p.wrapped_key IS NOT NULL
    ORDER BY c.id DESC LIMIT 1
) k ON true
WHERE s.tenant_id = %(tenant)s AND (%(after)s::uuid IS NULL OR s.id > %(after)s::uuid) AND {STANDS}
ORDER BY s.id LIMIT %(limit)s
"""  # noqa: S608 - put together from the constants above

RECIPIENTS_PAGE = """
SELECT v.ref AS row_id, v.ref, v.time_zone, v.locale, k.sealed_address, p.id AS key_id, p.wrapped_key
FROM (SELECT DISTINCT ON (ref) * FROM recipient WHERE tenant_id = %(tenant)s AND (%(after)s::text IS NULL OR ref > %(after)s)
      ORDER BY ref, version DESC LIMIT %(limit)s) v
JOIN person_key p ON p.tenant_id = v.tenant_id AND p.kind = 'person' AND p.name = v.ref
LEFT JOIN contact k ON k.id = (v.contacts ->> 'sms')::uuid
ORDER BY v.ref
"""


class Record(Protocol):
    """Keep many items of one noun, in order."""

    def __call__(self, session: Session, new: Sequence[Any], *, tenant_id: UUID, actor: str, now: datetime) -> Sequence[Result]:
        """Give for each what became of it."""


RecordOf = Callable[[UUID], Record]
"""The verb that keeps items, for the operator action that they follow from."""


@dataclass(frozen=True, slots=True)
class Noun:
    """One thing that files hold."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[Mapping[str, Any], str, ReadNumber], Item | list[Problem]]
    """Of a line's fields and its ref, which is empty where it names none."""
    record: RecordOf
    page: str
    """The rows after one, in an order that does not change."""
    instant: str = "captured_at"
    """The column that says when it was told."""
    once: bool = False
    """A person stands in a file once: a description replaces the one before."""
    names: tuple[str, ...] = ("ref",)
    """The columns that say whom a line is about: one of them is needed."""
    keeps_erased: bool = False
    """It goes out also of people whose address can be read no more."""


def _recipient(fields: Mapping[str, Any], ref: str, number_of: ReadNumber) -> Item | list[Problem]:
    return read_recipient_of(fields, ref=ref, number_of=number_of)


def _consent(fields: Mapping[str, Any], ref: str, number_of: ReadNumber) -> Item | list[Problem]:
    return read_consent_of(fields, ref=ref, dated=True, number_of=number_of)


def _preference(fields: Mapping[str, Any], ref: str, number_of: ReadNumber) -> Item | list[Problem]:
    return read_preference_of(fields, ref=ref, dated=True, number_of=number_of)


def _suppression(fields: Mapping[str, Any], ref: str, number_of: ReadNumber) -> Item | list[Problem]:
    return read_listed_of(fields, ref=ref or None, number_of=number_of)


def _told_by_itself(record: Record) -> RecordOf:
    """Of what keeps who told it in its own rows."""
    return lambda _: record


def _suppressions(action_id: UUID) -> Record:
    def record(
        session: Session, new: Sequence[NewSuppression], *, tenant_id: UUID, actor: str, now: datetime
    ) -> Sequence[Result]:
        del actor  # the action says it
        return record_suppressions(session, new, tenant_id=tenant_id, cause_id=action_id, now=now)

    return record


RECIPIENTS: Final = Noun(
    "recipients", ("ref", *RECIPIENT_FIELDS), _recipient, _told_by_itself(put_recipients), RECIPIENTS_PAGE, once=True
)
CONSENTS: Final = Noun("consents", ("ref", *CONSENT_FIELDS), _consent, _told_by_itself(record_consents), CONSENTS_PAGE)
PREFERENCES: Final = Noun(
    "preferences",
    ("ref", "sms", *PREFERENCE_FIELDS),
    _preference,
    _told_by_itself(record_preferences),
    PREFERENCES_PAGE,
    instant="at",
)
SUPPRESSIONS: Final = Noun(
    "suppressions",
    ("ref", *LISTED_FIELDS),
    _suppression,
    _suppressions,
    SUPPRESSIONS_PAGE,
    instant="at",
    names=("ref", "sms", "fingerprint"),
    keeps_erased=True,
)
