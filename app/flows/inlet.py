"""Accept what other programs inserted into the inlet, by the same function as HTTP, or keep why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson
from psycopg import DataError, IntegrityError
from psycopg import Error as PsycopgError
from psycopg.types.json import Jsonb
from sqlalchemy.exc import DBAPIError

from app.ground.db import Tx, rows, transact
from app.ground.log import log
from app.ledger.accept import Refused, accept
from app.ledger.request import NewEvent, Problem, read_request
from app.people.holding import holding_key

# Rows of committed transactions only; a row that another worker holds is passed over. As text: jsonb
# holds numbers and depths that no JSON reader takes, and one such row must not stop the others.
CLAIM = """
SELECT i.id, i.request::text AS request, t.id AS tenant_id FROM inlet i LEFT JOIN tenant t ON t.name = i.tenant
WHERE i.status = 'waiting' AND i.id > %(after)s ORDER BY i.id LIMIT %(limit)s FOR UPDATE OF i SKIP LOCKED
"""

# Emptied in the transaction that accepts or refuses: clear text stays no longer than it must.
ACCEPTED = """
UPDATE inlet i SET status = 'accepted', event_id = n.event_id, request = NULL, done_at = %(now)s
FROM unnest(%(ids)s::bigint[], %(events)s::uuid[]) AS n (id, event_id) WHERE i.id = n.id
"""

REFUSED = """
UPDATE inlet SET status = 'refused', error = %(error)s, sealed_request = %(sealed)s, person_key_id = %(key)s, request = NULL,
       done_at = %(now)s
WHERE id = %(id)s
"""

PAGE: Final = 200
NOBODY: Final = UUID(int=0)
"""Requests of a tenant that does not exist are sealed under nobody's holding key."""


def take_inlet() -> int:
    """Accept a page of the inlet; return how many rows are done."""
    try:
        return transact(partial(_take, limit=PAGE, after=0))
    except (DBAPIError, PsycopgError) as error:
        if not _is_poison(error):
            raise
        log.error("inlet_page_refused", cause=type(error).__name__)
        return _one_by_one()


def _is_poison(error: DBAPIError | PsycopgError) -> bool:
    """Say whether a row is to blame, and not the database's state."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return isinstance(cause, DataError | IntegrityError)


def _one_by_one() -> int:
    """One row is poison: find it, refuse it, and let the others through."""
    waiting = transact(lambda tx: [row.id for row in rows(tx.session, CLAIM, limit=PAGE, after=0)])
    for inlet_id in waiting:
        try:
            transact(partial(_take, limit=1, after=inlet_id - 1))
        except (DBAPIError, PsycopgError) as error:
            if not _is_poison(error):
                raise
            log.error("inlet_poison", inlet_id=inlet_id, cause=type(error).__name__)
            transact(partial(_refuse_poison, inlet_id=inlet_id))
    return len(waiting)


def _refuse_poison(tx: Tx, inlet_id: int) -> None:
    for row in rows(tx.session, CLAIM, limit=1, after=inlet_id - 1):
        _refuse(tx, row, [Problem("refused_by_ledger", "the ledger cannot keep this request")])


def _take(tx: Tx, *, limit: int, after: int) -> int:
    found = rows(tx.session, CLAIM, limit=limit, after=after)
    by_tenant: dict[UUID, list[tuple[Any, NewEvent]]] = {}
    for row in found:
        if row.tenant_id is None:
            _refuse(tx, row, [Problem("unknown_tenant", "there is no tenant of this name", "#tenant")])
            continue
        request = _read(row.request)
        if isinstance(request, NewEvent):
            by_tenant.setdefault(row.tenant_id, []).append((row, request))
        else:
            _refuse(tx, row, request)
    for tenant_id, asked in sorted(by_tenant.items()):
        _accept(tx, tenant_id, asked)
    return len(found)


def _read(text: str) -> NewEvent | list[Problem]:
    try:
        return read_request(orjson.loads(text))
    except orjson.JSONDecodeError:
        return [Problem("invalid_field", "holds a number that is too large, or is nested too deep")]


def _accept(tx: Tx, tenant_id: UUID, asked: Sequence[tuple[Any, NewEvent]]) -> None:
    results = accept(tx.session, [r for _, r in asked], tenant_id=tenant_id, source="inlet", now=tx.now)
    ids, events = [], []
    for (row, _), result in zip(asked, results, strict=True):
        if isinstance(result, Refused):
            _refuse(tx, row, result.problems)
        else:
            ids.append(row.id)
            events.append(result.event_id)
    rows(tx.session, ACCEPTED, ids=ids, events=events, now=tx.now)


def _refuse(tx: Tx, row: Any, problems: Sequence[Problem]) -> None:  # noqa: ANN401 - a row of CLAIM
    key = holding_key(tx.session, tenant_id=row.tenant_id or NOBODY, now=tx.now)
    error: Mapping[str, Any] = {
        "problems": [{"code": p.code, "detail": p.detail, "pointer": p.pointer} for p in problems],
    }
    sealed = key.seal(row.request)
    rows(tx.session, REFUSED, id=row.id, error=Jsonb(error), sealed=sealed, key=key.id, now=tx.now)
