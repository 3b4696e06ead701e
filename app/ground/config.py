"""Configuration: read once from the environment, frozen, typed, with units in the names."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from urllib.parse import urlsplit

from app.ground.errors import DaybookError


class BadSetting(DaybookError):
    """A setting is missing or cannot be read; the message names it and says what is expected."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What one process of Daybook needs to know about the world."""

    database_url: str
    redis_url: str
    broker_url: str
    key_ring: tuple[tuple[str, bytes], ...]
    """(id, Fernet key) pairs, newest first: the first encrypts, all decrypt."""
    hash_ring: tuple[tuple[str, bytes], ...]
    """(id, secret) pairs for keyed hashes, newest first."""
    public_url: str
    """Where strangers reach the web process; receipt URLs are made from it."""
    window_count: int = 64
    """How many attempts one worker process may hold prepared without an answer."""
    lease_seconds: float = 60.0
    handoff_seconds: float = 15.0
    """H: after this long from `prepared`, nothing is written to a carrier any more."""
    visibility_seconds: int = 300
    """After this long without an acknowledgement the broker, where it is Redis, gives a message to another worker."""
    dispatch_page_count: int = 500
    poll_page_count: int = 100
    statement_timeout_ms: int = 15_000
    lock_timeout_ms: int = 10_000
    log_level: str = "INFO"

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Settings:
        """Read the settings, or raise BadSetting with one sentence that says what to change."""
        redis_url = _required(env, "REDIS_URL")
        return cls(
            database_url=database_url(_required(env, "DATABASE_URL")),
            redis_url=heroku_redis(redis_url),
            broker_url=heroku_redis(env.get("BROKER_URL") or redis_url),
            key_ring=_ring(env, "DAYBOOK_KEY_RING", size=32),
            hash_ring=_ring(env, "DAYBOOK_HASH_RING", size=None),
            public_url=_url(env, "DAYBOOK_PUBLIC_URL").rstrip("/"),
            window_count=_number(env, "DAYBOOK_WINDOW", 64, low=1, high=1000),
            lease_seconds=_seconds(env, "DAYBOOK_LEASE_SECONDS", 60.0, low=2.0, high=60.0),
            handoff_seconds=_seconds(env, "DAYBOOK_HANDOFF_SECONDS", 15.0, low=1.0, high=60.0),
            visibility_seconds=_number(env, "DAYBOOK_VISIBILITY_SECONDS", 300, low=1, high=86_400),
            log_level=env.get("DAYBOOK_LOG_LEVEL", "INFO").upper(),
        )


@cache
def settings() -> Settings:
    """Give this process's settings, read from the environment at the first call."""
    return Settings.from_env(os.environ)


@cache
def failpoints_folder() -> str:
    """Give the folder of failpoints; empty everywhere but in tests: there are none."""
    return os.environ.get("DAYBOOK_FAILPOINTS", "")


def database_url(url: str) -> str:
    """Name the driver: Heroku says postgres://, which SQLAlchemy no longer knows."""
    scheme, found, rest = url.partition("://")
    if not found or scheme not in {"postgres", "postgresql", "postgresql+psycopg"}:
        raise BadSetting("DATABASE_URL must begin with postgres:// or postgresql://")
    return f"postgresql+psycopg://{rest}"


def heroku_redis(url: str) -> str:
    """Accept the self-signed certificate of Heroku's rediss:// unless the URL says what to check."""
    parts = urlsplit(url)
    if parts.scheme != "rediss" or "ssl_cert_reqs" in parts.query:
        return url
    return url + ("&" if parts.query else "?") + "ssl_cert_reqs=none"


def _required(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "").strip()
    if not value:
        raise BadSetting(f"{name} is not set; `make up` sets it for you, elsewhere it comes from the environment")
    return value


def _url(env: Mapping[str, str], name: str) -> str:
    value = _required(env, name)
    if urlsplit(value).scheme not in {"http", "https"} or not urlsplit(value).netloc:
        raise BadSetting(f"{name} must be an absolute http or https URL")
    return value


def _ring(env: Mapping[str, str], name: str, *, size: int | None) -> tuple[tuple[str, bytes], ...]:
    ring = []
    for entry in _required(env, name).split(","):
        key_id, found, encoded = entry.strip().partition(":")
        try:
            secret = base64.b64decode(encoded, altchars=b"-_", validate=True)
        except binascii.Error:
            secret = b""
        if not (found and key_id.isalnum()) or len(secret) < 32 or size not in {None, len(secret)}:  # noqa: PLR2004 - 256 bits
            raise BadSetting(f"{name} must be id:key pairs joined by commas, each key 32 bytes in URL-safe base64, newest first")
        ring.append((key_id, encoded.encode() if size else secret))
    return tuple(ring)


def _number(env: Mapping[str, str], name: str, default: int, *, low: int, high: int) -> int:
    value = env.get(name, str(default))
    if not value.isdecimal() or not low <= int(value) <= high:
        raise BadSetting(f"{name} must be a whole number from {low} to {high}")
    return int(value)


def _seconds(env: Mapping[str, str], name: str, default: float, *, low: float, high: float) -> float:
    try:
        value = float(env.get(name, default))
    except ValueError:
        value = -1.0
    if not low <= value <= high:
        raise BadSetting(f"{name} must be a number of seconds from {low} to {high}")
    return value
