"""Give people, consents or preferences out, page by page, in the columns that can be brought in again."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy.orm import Session

from app.desk.transfer.cells import write_cell
from app.desk.transfer.lines import Form
from app.desk.transfer.nouns import Noun
from app.ground.db import rows
from app.people.vault import open_vault_key

PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class Given:
    """One page: its lines as text, how many rows it holds, and how many of erased people it leaves out."""

    text: str
    count: int
    erased: int
    last: UUID | str | None
    """The row after which the next page begins; None after the last."""


def write_header(noun: Noun, form: Form) -> str:
    """Write what stands before the first page."""
    return _csv([list(noun.columns)]) if form is Form.CSV else ""


def give_page(session: Session, noun: Noun, form: Form, *, tenant_id: UUID, after: UUID | str | None) -> Given:
    """Read and write the rows after one; of people who were erased no address is given out, and most often nothing."""
    found = rows(session, noun.page, tenant=tenant_id, after=after, limit=PAGE)
    readable = [row for row in found if noun.keeps_erased or row.wrapped_key is not None]
    given = [_document(noun, row) for row in readable]
    text = _csv([_cells(noun, each) for each in given]) if form is Form.CSV else _jsonl(given)
    last = found[-1].row_id if len(found) == PAGE else None
    return Given(text, len(given), len(found) - len(readable), last)


def _document(noun: Noun, row: Any) -> dict[str, Any]:  # noqa: ANN401 - a row of the noun's page
    address = None
    if row.sealed_address is not None:
        address = open_vault_key(row.key_id, row.wrapped_key).open(row.sealed_address)
    return {name: address if name == "sms" else _plain(getattr(row, name)) for name in noun.columns}


def _plain(value: object) -> object:
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def _cells(noun: Noun, document: dict[str, Any]) -> list[str]:
    return [write_cell(_cell(document[name])) for name in noun.columns]


def _cell(value: object) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _csv(table: Sequence[Sequence[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(table)
    return out.getvalue()


def _jsonl(documents: Sequence[dict[str, Any]]) -> str:
    return "".join(orjson.dumps(each).decode() + "\n" for each in documents)
