"""Route tokens and the fast no: one atomic script in Redis per act, answering in durations. Redis holds no truth.

A bucket counts the tokens of a route, or of a tenant over all of its routes. A mark says that a person
was just contacted; it only ever says no, and for seconds: the gate row in Postgres is the referee.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

import redis

from app.ground.config import settings
from app.ground.errors import DaybookError
from app.ground.keys import keyed_hash
from policy.rates import Rate
from policy.words import Lane, Reason

VOID_AFTER_SECONDS: Final = 1.0
"""What is not written by then is not sent with this token: at the carrier, rate x (window + 1 s) + burst."""
MARKED_FOR: Final = timedelta(seconds=30)
"""A mark that nobody took down costs as long at most. It need not outlive a page on its way: dispatch asks the gate."""
LOOK_AGAIN: Final = timedelta(seconds=1)
"""When a row that met a mark is decided again."""

# Redis's own clock, so that all workers on all machines share one; only durations leave the scripts.
# A bucket that is not there was never used, or Redis lost it: it starts half full. Buckets of a day ago are full.
LEVEL: Final = """
local t = redis.call('TIME')
local now = t[1] * 1000 + t[2] / 1000
local function level(key, rate, burst)
    local kept = redis.call('HMGET', key, 'tokens', 'at')
    local tokens, at = tonumber(kept[1]) or math.ceil(burst / 2), tonumber(kept[2]) or now
    return math.min(burst, tokens + math.max(0, now - at) * rate / 1000)
end
local function keep(key, tokens)
    redis.call('HSET', key, 'tokens', string.format('%.6f', tokens), 'at', string.format('%.3f', now))
    redis.call('PEXPIRE', key, 86400000)
end
"""

# In order, and nobody passes the first that finds no token: what is long would wait for ever behind what is short.
# What costs more than the bucket holds takes a full one and leaves a debt, so that the rate stays.
TAKE: Final = (
    LEVEL
    + """
local count, lease = tonumber(ARGV[1]), tonumber(ARGV[2])
local buckets = {}
for b = 1, count do
    local a = 3 * b
    local rate, burst, reserve = tonumber(ARGV[a]), tonumber(ARGV[a + 1]), tonumber(ARGV[a + 2])
    buckets[b] = {key = KEYS[b], rate = rate, most = burst - reserve, free = level(KEYS[b], rate, burst) - reserve,
                  reserve = reserve}
end
local said, waits, late = {}, {}, false
local asks = (#ARGV - 2 - 3 * count) / 2
for i = 1, asks do
    local cost, holder = tonumber(ARGV[1 + 3 * count + 2 * i]), ARGV[2 + 3 * count + 2 * i]
    local slot, person = KEYS[count + 2 * i - 1], KEYS[count + 2 * i]
    local no = false
    if holder ~= '' then
        local has, last = redis.call('GET', slot), redis.call('GET', person)
        if has and has ~= holder then
            said[i], waits[i], no = 'cooldown', redis.call('PTTL', slot), true
        elseif last then
            local by, theirs = string.match(last, '^(%d+):(.*)$')
            if theirs ~= holder and tonumber(by) > lease then
                said[i], waits[i], no = 'frequency_cap', redis.call('PTTL', person), true
            end
        end
    end
    if not no then
        local wait = 0
        for _, bucket in ipairs(buckets) do
            wait = math.max(wait, (math.min(cost, bucket.most) - bucket.free) * 1000 / bucket.rate)
        end
        late = late or wait > 0
        said[i], waits[i] = late and 'late' or 'taken', math.ceil(wait)
        for _, bucket in ipairs(buckets) do
            bucket.free = bucket.free - cost
            if not late then bucket.taken = (bucket.taken or 0) + cost end
        end
    end
end
for b, bucket in ipairs(buckets) do
    keep(bucket.key, level(bucket.key, bucket.rate, bucket.most + bucket.reserve) - (bucket.taken or 0))
end
return {said, waits}
"""
)

# What was gained since the tokens were taken may have run over while they were out, so it is not given back
# on top: however often tokens go out and back, what is used stays below rate x time + burst.
GIVE_BACK: Final = (
    LEVEL
    + """
for b = 1, #KEYS do
    local rate, burst = tonumber(ARGV[3 * b - 2]), tonumber(ARGV[3 * b - 1])
    if redis.call('EXISTS', KEYS[b]) == 1 then
        keep(KEYS[b], math.min(burst, level(KEYS[b], rate, burst) + math.max(0, tonumber(ARGV[3 * b]))))
    end
end
"""
)

PEEK: Final = (
    LEVEL
    + """
local tokens = level(KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]))
keep(KEYS[1], tokens)
return math.floor((tokens - tonumber(ARGV[3])) * 1000)
"""
)

MARK: Final = """
for i = 1, #KEYS / 2 do
    local a = 4 * i - 3
    if tonumber(ARGV[a + 1]) > 0 then redis.call('SET', KEYS[2 * i - 1], ARGV[a], 'PX', ARGV[a + 1]) end
    if tonumber(ARGV[a + 2]) > 0 then redis.call('SET', KEYS[2 * i], ARGV[a + 3] .. ':' .. ARGV[a], 'PX', ARGV[a + 2]) end
end
"""

UNMARK: Final = """
for i = 1, #KEYS do
    if redis.call('GET', KEYS[i]) == ARGV[i] then redis.call('DEL', KEYS[i]) end
end
"""


class LimitsUnreachable(DaybookError):
    """Redis does not answer: what would need a token waits."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one attempt asks for: tokens, and whether its person was just contacted for another reason.

    `person` and `holder` are keyed hashes: of the tenant's person, and of the business key. Empty: that is not asked.
    """

    cost: int = 1
    """In segments on the way to the worker, which knows what its route counts."""
    person: str = ""
    category: str = ""
    holder: str = ""

    @classmethod
    def about(cls, *, cost: int, tenant_id: UUID, gate_hash: bytes, category: str, business_key: str) -> Ask:
        """Ask for one attempt; who has no hash ring cannot tell its marks from chance."""
        person = keyed_hash("mark", tenant_id.bytes + gate_hash).digest[:8].hex()
        holder = keyed_hash("holder", tenant_id.bytes + business_key.encode()).digest[:8].hex()
        return cls(cost, person, category, holder)

    @property
    def marks(self) -> tuple[str, str]:
        """Name the keys of the slot and of the person."""
        return f"daybook:slot:{self.person}:{self.category}", f"daybook:told:{self.person}"


@dataclass(frozen=True, slots=True)
class Terms:
    """What a page brings along for its limits. A message of the release before brings none: one token each."""

    lane: Lane | None = None
    tenant_rate: Rate | None = None
    """By the version in force when the page was decided."""
    asks: Mapping[UUID, Ask] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is asked of one bucket: its rate, and what the lane must leave in it."""

    key: str
    rate: Rate
    reserve: int = 0

    @classmethod
    def of_route(cls, route_id: UUID, rate: Rate, lane: Lane | None = None) -> Bucket:
        """Name the bucket that everybody shares who uses this route."""
        return cls(f"daybook:tokens:{route_id}", rate, rate.reserve(lane))

    @classmethod
    def of_tenant(cls, tenant_id: UUID, rate: Rate, lane: Lane | None = None) -> Bucket:
        """Name the bucket of everything that a tenant sends."""
        return cls(f"daybook:tenant:{tenant_id}", rate, rate.reserve(lane))


@dataclass(frozen=True, slots=True)
class Said:
    """What was said to one ask: taken, or the reason of the no, and how long until it may be asked again."""

    taken: bool
    reason: Reason | None = None
    wait: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class Mark:
    """What an attempt that was prepared leaves behind: for how long its person is taken in the category, and counted."""

    ask: Ask
    slot_for: timedelta
    told_for: timedelta = field(default=timedelta())


def clock() -> float:
    """Read the clock by which tokens grow void, in seconds: one that also counts suspension."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@cache
def _client_of(pid: int) -> redis.Redis:
    del pid  # one client per process: connections do not cross a fork
    return redis.Redis.from_url(settings().redis_url, socket_timeout=2, socket_connect_timeout=2, socket_keepalive=True)


def client() -> redis.Redis:
    """Give this process's Redis client."""
    return _client_of(os.getpid())


def take(buckets: Sequence[Bucket], asks: Sequence[Ask], *, lease: int = 0) -> list[Said]:
    """Take tokens of all the buckets for each ask, in order, as far as they go; LimitsUnreachable when Redis does not answer.

    `lease` is the number under which the attempts were decided: who was told something under a later one was not
    among what that decision counted.
    """
    keys = [bucket.key for bucket in buckets] + [key for ask in asks for key in ask.marks]
    limits = [number for b in buckets for number in (b.rate.per_second, b.rate.burst, b.reserve)]
    said, waits = _run(TAKE, keys, [len(buckets), lease, *limits, *(value for ask in asks for value in (ask.cost, ask.holder))])
    return [_said(word.decode(), wait) for word, wait in zip(said, waits, strict=True)]


def _said(word: str, wait_ms: int) -> Said:
    match word:
        case "taken":
            return Said(taken=True)
        case "late":
            return Said(taken=False, reason=Reason.RATE_LIMITED, wait=timedelta(milliseconds=max(1, wait_ms)))
        case _:
            return Said(taken=False, reason=Reason(word), wait=min(LOOK_AGAIN, timedelta(milliseconds=max(1, wait_ms))))


def give_back(buckets: Sequence[Bucket], count: int, *, age_seconds: float) -> None:
    """Give tokens back that were taken so long ago and will not be used; LimitsUnreachable when Redis does not answer."""
    numbers = [n for b in buckets for n in (b.rate.per_second, b.rate.burst, count - b.rate.per_second * age_seconds)]
    _run(GIVE_BACK, [bucket.key for bucket in buckets], numbers)


def peek(bucket: Bucket) -> float:
    """Say how many tokens a lane could take of a bucket now; below zero where others left a debt, or a reserve."""
    return int(_run(PEEK, [bucket.key], [bucket.rate.per_second, bucket.rate.burst, bucket.reserve])) / 1000


def mark(marks: Sequence[Mark], *, lease: int) -> None:
    """Say no to others about these people, for a while; LimitsUnreachable when Redis does not answer."""
    if marks:
        keys = [key for each in marks for key in each.ask.marks]
        _run(MARK, keys, [v for m in marks for v in (m.ask.holder, _ms(m.slot_for), _ms(m.told_for), lease)])


def unmark(asks: Sequence[Ask]) -> None:
    """Take the slots' marks down that these left: nothing was taken; LimitsUnreachable when Redis does not answer."""
    if asks:
        _run(UNMARK, [ask.marks[0] for ask in asks], [ask.holder for ask in asks])


def _ms(duration: timedelta) -> int:
    return int(min(duration, MARKED_FOR) / timedelta(milliseconds=1))


def _run(script: str, keys: Sequence[str], arguments: Sequence[object]) -> Any:  # noqa: ANN401 - what the script returns
    try:
        return _script(script)(keys=keys, args=arguments, client=client())
    except redis.RedisError as error:
        raise LimitsUnreachable(type(error).__name__) from error


@cache
def _script(text: str) -> Any:  # noqa: ANN401 - redis-py's, which is untyped
    return redis.Redis().register_script(text)  # sent whole only where the server does not know it yet
