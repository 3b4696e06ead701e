"""Route tokens: one atomic script in Redis, answering in durations. Redis holds no truth; losing it sends nothing twice."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Final, cast
from uuid import UUID

import redis

from app.ground.config import settings
from app.ground.errors import DaybookError

# Redis's own clock, so that all workers on all machines share one; only durations leave the script.
TAKE: Final = """
local rate, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(bucket[1]) or burst, tonumber(bucket[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate / 1000)
local granted = math.min(wanted, math.floor(tokens))
tokens = tokens - granted
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', tostring(now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
local wait = 0
if granted < wanted then wait = math.ceil((1 - tokens) * 1000 / rate) end
return {granted, wait}
"""

GIVE_BACK: Final = """
local tokens = tonumber(redis.call('HGET', KEYS[1], 'tokens'))
if tokens then redis.call('HSET', KEYS[1], 'tokens', tostring(math.min(tonumber(ARGV[1]), tokens + tonumber(ARGV[2])))) end
"""


class LimitsUnreachable(DaybookError):
    """Redis does not answer: what would need a token waits."""


@dataclass(frozen=True, slots=True)
class Grant:
    """How many tokens were granted, and how long until there is another."""

    count: int
    wait: timedelta


@cache
def _client_of(pid: int) -> redis.Redis:
    del pid  # one client per process: connections do not cross a fork
    return redis.Redis.from_url(settings().redis_url, socket_timeout=2, socket_connect_timeout=2, socket_keepalive=True)


def client() -> redis.Redis:
    """Give this process's Redis client."""
    return _client_of(os.getpid())


def take(route_id: UUID, *, rate_per_second: int, burst_count: int, wanted: int) -> Grant:
    """Take up to `wanted` tokens of a route; LimitsUnreachable when Redis does not answer."""
    try:
        answer = client().eval(TAKE, 1, _bucket(route_id), str(rate_per_second), str(burst_count), str(wanted))
    except redis.RedisError as error:
        raise LimitsUnreachable(type(error).__name__) from error
    granted, wait_ms = cast("list[int]", answer)
    return Grant(int(granted), timedelta(milliseconds=int(wait_ms)))


def give_back(route_id: UUID, *, burst_count: int, count: int) -> None:
    """Give tokens back that prepare did not use; LimitsUnreachable when Redis does not answer."""
    try:
        client().eval(GIVE_BACK, 1, _bucket(route_id), str(burst_count), str(count))
    except redis.RedisError as error:
        raise LimitsUnreachable(type(error).__name__) from error


def _bucket(route_id: UUID) -> str:
    return f"daybook:tokens:{route_id}"
