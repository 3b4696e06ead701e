"""Pages are worked on as sets: ten times the rows take not one statement more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy.orm import Session

from app.ledger.observe import observe
from policy.states import AttemptState
from policy.words import Source
from tests import making

FEW, MANY = 5, 50


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Write down every statement that goes to Postgres meanwhile."""
    statements: list[str] = []
    execute: Callable[..., Any] = psycopg.Cursor.execute
    mogrify: Callable[..., Any] = psycopg.ClientCursor.mogrify

    def executing(self: psycopg.Cursor[Any], query: Any, *args: Any, **more: Any) -> Any:
        if not isinstance(query, bytes):  # what goes together was counted as it was put together
            statements.append(query)
        return execute(self, query, *args, **more)

    def putting_together(self: psycopg.ClientCursor[Any], query: Any, *args: Any) -> Any:
        statements.append(query)
        return mogrify(self, query, *args)

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Cursor, "execute", executing)
        patched.setattr(psycopg.ClientCursor, "mogrify", putting_together)
        yield statements


def requests(prefix: str, count: int) -> list[dict[str, Any]]:
    """Write requests for people of their own, none of whom shares a gate."""
    return [making.ask(ref=f"{prefix}-{n}", sms=f"+1201555{100 + n:04d}", subject=f"{prefix}-{n}") for n in range(count)]


@pytest.fixture
def house(session: Session) -> making.House:
    return making.make_house(session, policy=making.sample(cooldown="0s"), rate=1000)


def turns(session: Session, house: making.House, prefix: str, count: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Take a page from acceptance to delivery; count the statements of each turn."""
    numbers = {}
    with counted(monkeypatch) as statements:
        making.accept_all(session, house, *requests(prefix, count))
    numbers["accept"] = len(statements)
    with counted(monkeypatch) as statements:
        pages = making.claim(session, house)
    numbers["claim"] = len(statements)
    ids = [i for page in pages for i in page.attempt_ids]
    lease = {i: page.lease for page in pages for i in page.attempt_ids}
    first = [i for i in ids if lease[i] == pages[0].lease]
    standings = [making.Standing(house, pages[0].route_id, pages[0].route_id, i, lease[i]) for i in first]
    with counted(monkeypatch) as statements:
        prepared = making.prepare_all(session, *standings)
    assert len(prepared.handoffs) == len(first)
    numbers["prepare"] = len(statements)
    for state in (AttemptState.SUBMITTED, AttemptState.DELIVERED):
        told = [making.told(s, state, source=Source.RECEIPT, remote_id=f"SM{s.attempt_id.hex}") for s in standings]
        with counted(monkeypatch) as statements:
            observe(session, told, now=making.NOON)
        numbers[f"observe {state}"] = len(statements)
    return numbers


def test_ten_times_the_rows_take_the_same_statements(
    session: Session, house: making.House, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(session, house, "warm", FEW, monkeypatch)  # what is read once per process is read now

    few = turns(session, house, "few", FEW, monkeypatch)
    many = turns(session, house, "many", MANY, monkeypatch)

    assert many == few
