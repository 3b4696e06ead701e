"""Keyed hashes, API keys and attempt keys: everything that proves or hides by a secret."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from app.ground.config import settings
from app.ground.errors import DaybookError

KEY_PREFIX: Final = "dbk"


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """A hash that only the holder of the ring can make, and the id of the key that made it."""

    key_id: str
    digest: bytes


class HashKeyMissing(DaybookError):
    """The ring does not hold the key that made this hash: put it back into DAYBOOK_HASH_RING."""


def keyed_hash(purpose: str, value: bytes, *, key_id: str | None = None) -> KeyedHash:
    """Hash a value under the newest key of the hash ring, or the one named; different purposes never collide."""
    ring = settings().hash_ring
    for ring_id, secret in ring:
        if key_id in {None, ring_id}:
            return KeyedHash(ring_id, hmac.digest(secret, purpose.encode() + b"\0" + value, "sha256"))
    raise HashKeyMissing(f"the hash ring has no key {key_id!r}: add it to DAYBOOK_HASH_RING")


def lasting_hash(purpose: str, value: bytes) -> KeyedHash:
    """Hash a value under the oldest key of the ring.

    What people are found by (their gate, their suppressions) must not move when a newer key comes in
    front: the last key of the ring stays for as long as its hashes are in the books.
    """
    return keyed_hash(purpose, value, key_id=settings().hash_ring[-1][0])


def attempt_key(attempt_id: UUID) -> str:
    """Make an attempt's key: the id and a MAC over it, so that nobody outside can make one up."""
    mac = keyed_hash("attempt", attempt_id.bytes).digest[:16]
    return base64.urlsafe_b64encode(attempt_id.bytes + mac).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key as it is shown once, and what is kept of it."""

    id: UUID
    text: str = field(repr=False)
    secret_hash: bytes = field(repr=False)


def new_api_key(key_id: UUID, secret: bytes | None = None) -> NewApiKey:
    """Make an API key for an id, of a random secret unless one is given (32 bytes)."""
    secret = secret or secrets.token_bytes(32)
    text = f"{KEY_PREFIX}_{key_id.hex}_{base64.urlsafe_b64encode(secret).decode().rstrip('=')}"
    return NewApiKey(key_id, text, hashlib.sha256(secret).digest())


def read_api_key(text: str) -> tuple[UUID, bytes] | None:
    """Take a key apart into its id and the hash of its secret; None when it is no key of ours."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    if prefix != KEY_PREFIX:
        return None
    try:
        raw = base64.b64decode(secret + "=" * (-len(secret) % 4), altchars=b"-_", validate=True)
        return UUID(hex=key_id), hashlib.sha256(raw).digest()
    except ValueError:
        return None


def same_bytes(ours: bytes, theirs: bytes) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(ours, theirs)
