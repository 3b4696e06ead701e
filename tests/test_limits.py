"""The limits' scripts on a real Valkey: what they grant in any window, what they leave for whom, and what they say no to."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from typing import Final
from uuid import UUID, uuid4

import pytest

from app import limits
from app.ground.ids import new_id
from app.limits import Ask, Bucket, Mark, Said
from policy.rates import Rate
from policy.words import Lane, Reason
from tests.conftest import World

TENANT: Final = UUID(int=1)
COOLED: Final = timedelta(minutes=10)
SLACK: Final = 0.25
"""Tokens that drop in while a test runs, at the slow rates that are used here."""


@pytest.fixture(autouse=True)
def emptied(world: World) -> Iterator[None]:
    yield
    world.valkey.flushdb()


def bucket_of(*, per_second: int = 1, burst: int = 10, lane: Lane | None = None) -> Bucket:
    rate = Rate(per_second, burst)
    return Bucket(f"daybook:tokens:{uuid4()}", rate, rate.reserve(lane))


def pass_time(world: World, bucket: Bucket, seconds: float) -> None:
    """Let time pass for one bucket, as Redis sees it."""
    limits.peek(bucket)
    world.valkey.hincrbyfloat(bucket.key, "at", -seconds * 1000)


def rested(world: World, *, per_second: int = 1, burst: int = 10, lane: Lane | None = None) -> Bucket:
    """Give a bucket that was left alone until it was full."""
    bucket = bucket_of(per_second=per_second, burst=burst, lane=lane)
    pass_time(world, bucket, 3600)
    return bucket


def taken(buckets: Bucket | list[Bucket], count: int, *, cost: int = 1) -> int:
    buckets = buckets if isinstance(buckets, list) else [buckets]
    return sum(said.taken for said in limits.take(buckets, [Ask(cost)] * count))


def ask_about(key: str, *, person: str = "anna", category: str = "transactional") -> Ask:
    return Ask.about(cost=1, tenant_id=TENANT, gate_hash=person.encode(), category=category, business_key=key)


def said_to(ask: Ask, *, lease: int = 1) -> Said:
    (said,) = limits.take([bucket_of(per_second=1000, burst=1000)], [ask], lease=lease)
    return said


# Buckets.


def test_after_a_rest_a_whole_burst_goes_at_once_and_then_what_the_rate_gives(world: World) -> None:
    bucket = rested(world, per_second=2, burst=10)

    first = taken(bucket, 50)
    pass_time(world, bucket, 3)
    second = taken(bucket, 50)

    assert (first, second) == (10, 6)


def test_a_bucket_that_redis_does_not_know_starts_half_full(world: World) -> None:
    """What a flush costs: half a burst more than the rate allows, once."""
    bucket = rested(world, burst=10)
    assert taken(bucket, 50) == 10

    world.valkey.flushdb()

    assert taken(bucket, 50) == 5


def test_a_tenants_rate_holds_over_all_its_routes_and_costs_the_route_nothing(world: World) -> None:
    tenant, routes = rested(world, burst=7), [rested(world, burst=5), rested(world, burst=5)]

    went = [taken([route, tenant], 5) for route in routes]

    assert went == [5, 2]
    assert limits.peek(routes[1]) == pytest.approx(3, abs=SLACK)


def test_a_long_text_waits_for_its_segments_and_no_short_one_passes_it(world: World) -> None:
    bucket = rested(world, burst=4)

    said = limits.take([bucket], [Ask(3), Ask(3), Ask(1)])

    assert [each.taken for each in said] == [True, False, False]


def test_a_text_longer_than_the_bucket_takes_a_full_one_and_the_rate_makes_up_for_it(world: World) -> None:
    bucket = rested(world, burst=4)

    assert [taken(bucket, 1, cost=6), taken(bucket, 1)] == [1, 0]
    pass_time(world, bucket, 2.5)
    assert taken(bucket, 1) == 0
    pass_time(world, bucket, 0.6)
    assert taken(bucket, 1) == 1


def test_bulk_leaves_a_fifth_of_the_burst_for_what_is_urgent(world: World) -> None:
    bulk = rested(world, burst=10, lane=Lane.BULK)
    urgent = Bucket(bulk.key, bulk.rate)

    assert taken(bulk, 50) == 8
    assert taken(bulk, 1) == 0
    assert taken(urgent, 50) == 2
    pass_time(world, bulk, 2)
    assert taken(bulk, 1) == 0, "the reserve is filled first"


@pytest.mark.parametrize(("burst", "reserve"), [(1, 0), (2, 1), (5, 1), (6, 2), (100, 20)])
def test_the_reserve_never_is_the_whole_bucket(burst: int, reserve: int) -> None:
    rate = Rate(10, burst)

    assert (rate.reserve(Lane.BULK), rate.reserve(Lane.URGENT), rate.reserve(None)) == (reserve, 0, 0)


def test_who_comes_too_late_is_told_a_time_each_one_behind_the_other(world: World) -> None:
    bucket = rested(world, per_second=10, burst=2)

    waits = [said.wait / timedelta(seconds=1) for said in limits.take([bucket], [Ask()] * 6)]

    assert waits == pytest.approx([0, 0, 0.1, 0.2, 0.3, 0.4], abs=0.05)


def test_what_is_given_back_can_be_taken_again(world: World) -> None:
    bucket = rested(world, burst=10)
    taken(bucket, 10)

    limits.give_back([bucket], 4, age_seconds=0.0)

    assert taken(bucket, 10) == 4


def test_nothing_is_given_back_into_a_bucket_that_was_lost_meanwhile(world: World) -> None:
    bucket = rested(world, burst=10)
    taken(bucket, 10)
    world.valkey.flushdb()

    limits.give_back([bucket], 10, age_seconds=0.0)

    assert taken(bucket, 50) == 5


@dataclass(frozen=True, order=True)
class Went:
    """So many tokens that went out, at some time between these two."""

    after: float
    before: float
    count: int


@dataclass
class Life:
    """One bucket over a long time, and what was taken out of it and not given back."""

    bucket: Bucket
    skipped: float = 0.0
    outstanding: list[Went] = field(default_factory=list)
    used: list[Went] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Say what time it is for this bucket."""
        return self.skipped + limits.clock()

    def step(self, world: World, chance: random.Random) -> None:
        """Take some, give some back that were out for a while, or let time pass."""
        act = chance.choice(["take", "take", "give_back", "keep", "wait"])
        asked_at = self.now
        if act == "take" and (count := taken(self.bucket, chance.choice([1, 2, 9]))):
            self.outstanding.append(Went(asked_at, self.now, count))
        elif act == "wait":
            seconds = chance.choice([0.3, 1.0, 4.0])
            pass_time(world, self.bucket, seconds)
            self.skipped += seconds
        elif self.outstanding:
            went = self.outstanding.pop(chance.randrange(len(self.outstanding)))
            if act == "give_back":
                limits.give_back([self.bucket], went.count, age_seconds=self.now - went.after)
            else:
                self.used.append(went)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_used_in_any_window_is_a_burst_and_the_rate_at_most_however_tokens_go_out_and_back(
    world: World, seed: int
) -> None:
    chance, rate = random.Random(seed), Rate(3, 9)  # noqa: S311 - the same lives each time
    life = Life(rested(world, per_second=rate.per_second, burst=rate.burst))

    for _ in range(200):
        life.step(world, chance)

    went = [*life.used, *life.outstanding]
    windows = [(first.after, last.before) for first, last in product(went, went) if first.after < last.before]
    over = [
        (begin, end)
        for begin, end in windows
        if sum(w.count for w in went if begin <= w.after and w.before <= end)
        > rate.burst + rate.per_second * (end - begin) + 0.01
    ]
    assert len(went) > 20
    assert over == []


# Marks.


def test_who_was_just_contacted_is_not_for_another_reason_of_the_category() -> None:
    limits.mark([Mark(ask_about("first"), COOLED)], lease=1)

    assert said_to(ask_about("second")).reason is Reason.COOLDOWN
    assert said_to(ask_about("first")).taken, "another channel, or a retry, of the same occasion"
    assert said_to(ask_about("second", category="marketing")).taken
    assert said_to(ask_about("second", person="ben")).taken


def test_a_no_takes_no_token_and_is_looked_at_again_within_a_second(world: World) -> None:
    bucket = rested(world, burst=1)
    limits.mark([Mark(ask_about("first"), COOLED)], lease=1)

    no, yes = limits.take([bucket], [ask_about("second"), ask_about("third", person="ben")])

    assert (no.taken, yes.taken) == (False, True)
    assert timedelta() < no.wait <= timedelta(seconds=1)


def test_a_mark_is_taken_down_by_who_left_it_alone() -> None:
    limits.mark([Mark(ask_about("first"), COOLED)], lease=1)

    limits.unmark([ask_about("second")])
    assert not said_to(ask_about("second")).taken
    limits.unmark([ask_about("first")])
    assert said_to(ask_about("second")).taken


def test_where_caps_count_a_later_contact_says_no_to_who_was_decided_before_it() -> None:
    limits.mark([Mark(ask_about("first"), timedelta(), COOLED)], lease=7)

    assert said_to(ask_about("second"), lease=6).reason is Reason.FREQUENCY_CAP
    assert said_to(ask_about("second"), lease=8).taken, "its decision may have counted that contact: the gate knows"
    assert said_to(ask_about("first"), lease=6).taken


def test_nothing_stays_and_nothing_tells_who_it_is_about(world: World) -> None:
    limits.mark([Mark(ask_about("class.opening/c-9081/m-1842", person="+12015550123"), COOLED, COOLED)], lease=1)
    taken(bucket_of(), 1)

    keys = [bytes(key).decode() for key in world.valkey.keys("daybook:*")]  # type: ignore[arg-type]  # redis-py knows str, too

    assert len(keys) == 3
    assert all(0 < world.valkey.pttl(key) <= 86_400_000 for key in keys)
    assert all(world.valkey.pttl(key) <= 30_000 for key in keys if "tokens" not in key)
    assert not any("2015550123" in text or "m-1842" in text for text in [*keys, *map(str, values_of(world, keys))])


def values_of(world: World, keys: list[str]) -> list[object]:
    return [world.valkey.get(key) for key in keys if "tokens" not in key]


def test_a_bucket_of_a_route_is_one_for_all_lanes_and_processes() -> None:
    route_id = new_id()

    assert Bucket.of_route(route_id, Rate(1, 1), Lane.BULK).key == Bucket.of_route(route_id, Rate(1, 1)).key
