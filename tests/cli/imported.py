"""What an import command said, and what it left in the tables."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tests.making import count_of


def count(engine: Engine, table: str) -> int:
    """Count a table's rows."""
    with Session(engine) as session:
        return count_of(session, table)


def told(result: Any) -> dict[str, Any]:
    """Read what a command printed with --json."""
    said: dict[str, Any] = json.loads(result.stdout)
    return said


def mistakes(result: Any) -> list[tuple[int, str, str]]:
    """Give the mistakes that were named, by line, column and code."""
    return [(each["line"], each["column"], each["code"]) for each in told(result)["mistakes"]]
