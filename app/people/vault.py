"""The vault: personal values, encrypted under a key per person, which the configured ring wraps."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any, Final
from uuid import UUID

import orjson
from cryptography.fernet import Fernet, InvalidToken

from app.ground.config import settings
from app.ground.errors import DaybookError


class VaultKeyMissing(DaybookError):
    """The ring does not hold the key that wrapped this, or the person was erased."""


class VaultDamaged(DaybookError):
    """A ciphertext does not open under the key that it names."""


@dataclass(frozen=True, slots=True)
class VaultKey:
    """One person's open key: it seals and opens, and never leaves the process."""

    id: UUID
    key: bytes = field(repr=False)

    def seal(self, value: object) -> bytes:
        """Encrypt a JSON value."""
        return _packed(_fernet(self.key).encrypt(orjson.dumps(value)))

    def open(self, sealed: bytes) -> Any:  # noqa: ANN401 - what was sealed comes back
        """Decrypt a JSON value; VaultDamaged when it was not sealed under this key."""
        try:
            return orjson.loads(_fernet(self.key).decrypt(_token(bytes(sealed))))
        except InvalidToken as error:
            raise VaultDamaged(f"a value under key {self.id} does not open") from error


# Fernet writes its tokens in base64, which a column of bytes does not need: a third of every ciphertext.
_VERSION: Final = b"\x80"


def _packed(token: bytes) -> bytes:
    return urlsafe_b64decode(token)


def _token(packed: bytes) -> bytes:
    return urlsafe_b64encode(packed) if packed.startswith(_VERSION) else packed  # an older row holds the token as it was


@lru_cache(maxsize=4096)
def _fernet(key: bytes) -> Fernet:
    return Fernet(key)


@cache
def _ring() -> dict[str, Fernet]:
    return {key_id: Fernet(key) for key_id, key in settings().key_ring}


def new_vault_key(key_id: UUID) -> tuple[VaultKey, bytes]:
    """Make a person's key, open and as it is stored."""
    key = Fernet.generate_key()
    return VaultKey(key_id, key), wrap(key)


def wrap(secret: bytes) -> bytes:
    """Encrypt a secret under the newest key of the ring, whose id goes in front."""
    ring_id, ring_key = next(iter(_ring().items()))
    return ring_id.encode() + b":" + _packed(ring_key.encrypt(secret))


@lru_cache(maxsize=4096)
def unwrap(wrapped: bytes) -> bytes:
    """Decrypt what `wrap` made; VaultKeyMissing when the ring lost the key, VaultDamaged when it was altered."""
    ring_id, _, token = wrapped.partition(b":")
    ring_key = _ring().get(ring_id.decode(errors="replace"))
    if ring_key is None:
        raise VaultKeyMissing(f"the key ring has no key {ring_id.decode(errors='replace')!r}: add it to DAYBOOK_KEY_RING")
    try:
        return ring_key.decrypt(_token(token))
    except InvalidToken as error:
        raise VaultDamaged("a wrapped key does not open under the key that it names") from error


def open_vault_key(key_id: UUID, wrapped: bytes | None) -> VaultKey:
    """Open a stored key; VaultKeyMissing after the person was erased."""
    if wrapped is None:
        raise VaultKeyMissing(f"key {key_id} was destroyed: this person was erased")
    return VaultKey(key_id, unwrap(bytes(wrapped)))
