"""Keys and scopes: who calls, and whether they may. Everything needs a key but what strangers call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar
from uuid import UUID

import structlog
from flask import Flask, g, request
from sqlalchemy.orm import Session

from app.ground.db import Tx, transact
from app.ground.keys import read_api_key
from app.people.access import find_key, opens
from web.problems import Refusal

T = TypeVar("T")

OPEN_BLUEPRINTS: Final = frozenset({"receipts", "inbound_calls", "health", "docs", "api-docs"})
CHALLENGE: Final = 'Bearer realm="daybook"'


@dataclass(frozen=True, slots=True)
class Presented:
    """A key as a caller presents it: well formed, and nothing more is known yet."""

    key_id: UUID
    secret_hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose key it is."""

    tenant_id: UUID
    key_id: UUID

    @property
    def actor(self) -> str:
        """Name the caller in the books, by the key's id."""
        return f"key:{self.key_id}"


def register(app: Flask) -> None:
    """Let no request without a key come to a handler, unless strangers may call it."""
    app.before_request(_present)


def as_caller(scope: str | None, work: Callable[[Tx, Caller], T]) -> T:
    """Run `work` in one transaction as the caller; its first statement finds the key, so a revoked one acts at once."""
    presented: Presented = g.presented
    return transact(lambda tx: work(tx, _caller(tx.session, presented, scope)))


def _present() -> None:
    if request.endpoint is None or request.blueprint in OPEN_BLUEPRINTS:
        return
    authorization = request.authorization
    if authorization is None or authorization.type != "bearer" or not authorization.token:
        raise Refusal("unauthorized", "send `Authorization: Bearer <key>`", headers={"WWW-Authenticate": CHALLENGE})
    read = read_api_key(authorization.token)
    if read is None:
        raise _unknown_key()
    g.presented = Presented(*read)


def _caller(session: Session, presented: Presented, scope: str | None) -> Caller:
    key = find_key(session, presented.key_id)
    if not opens(key, secret_hash=presented.secret_hash) or key is None:
        raise _unknown_key()
    structlog.contextvars.bind_contextvars(tenant_id=str(key.tenant_id))
    if scope is not None and scope not in key.scopes:
        challenge = f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"'
        raise Refusal("scope_missing", f"the key needs the scope {scope}", headers={"WWW-Authenticate": challenge})
    return Caller(key.tenant_id, key.id)


def _unknown_key() -> Refusal:
    # One answer for malformed, unknown, wrong and revoked: which it was is nobody's business.
    challenge = f'{CHALLENGE}, error="invalid_token"'
    return Refusal("unauthorized", "this key is not valid", headers={"WWW-Authenticate": challenge})
