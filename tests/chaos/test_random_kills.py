"""Kill -9 at random, for half a minute under load: two thousand events, each explained, none handed off twice."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, Final

import pytest

from local.state import temporary_folder
from tests.awaiting import eventually
from tests.chaos.conftest import hasty_policy
from tests.chaos.crowd import OPEN, Crowd, furnish
from tests.chaos.killer import Kill, Killer, find_unexplained
from tests.conftest import World
from tests.e2e.house import environment_of, running_house

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

SEED: Final = 20261130
EVENT_COUNT: Final = 2000
BATCH_COUNT: Final = 20
CLIENTS: Final = 2
POSTING_SECONDS: Final = 25.0
KILL_COUNT: Final = 25
WINDOW: Final = 16
# What the transport's time-outs add up to: no call is under way for longer.
CALL_WITHIN: Final = timedelta(seconds=15)
SETTLED_WITHIN: Final = 90.0

# Two lanes, two rules for what the carrier, asked twice, does not know: a new attempt, or a person.
TEMPLATES: Final = {"class-opening": "transactional", "waiting-list": "transactional", "new-hours": "operational"}
NOT_FOUND: Final = {"transactional": "resend", "operational": "review"}
WORKERS: Final = {"transactional": "worker", "operational": "worker_bulk"}
SHORT: Final = {
    "DAYBOOK_HANDOFF_SECONDS": "3",
    "DAYBOOK_LEASE_SECONDS": "5",
    "DAYBOOK_VISIBILITY_SECONDS": "8",  # the broker brings back what dead workers held, while leases run out as well
    "DAYBOOK_WINDOW": str(WINDOW),
}

# A carrier with a bad day, which is drawn for each text by number and turn.
CARRIER: Final = [
    {"match": {"probability": 0.01}, "then": {"respond": "drop", "receipts": "lost"}},
    {"match": {"probability": 0.01}, "then": {"respond": "hang", "hang_ms": 1500, "receipts": "lost"}},
    {"match": {"probability": 0.01}, "then": {"respond": "garbage"}},
    {"match": {"probability": 0.01}, "then": {"accept": False, "status": 503}},
    {"match": {"probability": 0.02}, "then": {"accept": False, "status": 400, "code": 30003}},
    {"match": {"probability": 0.01}, "then": {"receipts": [{"status": "undelivered", "after_ms": 100, "error_code": 30003}]}},
    {
        "match": {"probability": 0.05},
        "then": {"receipts": [{"status": "sent", "after_ms": 50}, {"status": "delivered", "after_ms": 4000}]},
    },
    {"match": {"probability": 0.05}, "then": {"receipts": "duplicate", "latency_ms": [50, 400]}},
    {"match": {"probability": 0.05}, "then": {"receipts": "early"}},
    {"match": {}, "then": {"latency_ms": [10, 60]}},
]

# Category, state, and what a person is asked. What nobody knows of is a question in one category only.
EXPLAINED: Final = {
    ("transactional", "delivered", "-"),
    ("operational", "delivered", "-"),
    ("transactional", "failed", "-"),
    ("operational", "failed", "-"),
    ("operational", "unknown", "not_found"),
}

EVENTS: Final = "SELECT count(*), count(DISTINCT subject) FROM event WHERE key LIKE 'kills/%%'"
ENDS: Final = """
SELECT i.category, i.state, coalesce(i.reason, '-'), coalesce(r.cause, '-'), count(*)
FROM intent i LEFT JOIN review r ON r.intent_id = i.id AND r.settled_at IS NULL
WHERE i.event_id = ANY(%s::uuid[]) GROUP BY 1, 2, 3, 4
"""
LEFT_BEHIND: Final = """
SELECT 'outbox', o.event_id::text FROM outbox o WHERE o.due_at < 'infinity'
UNION ALL SELECT 'prepared', a.event_id::text FROM attempt a WHERE a.state = 'prepared'
UNION ALL SELECT 'receipt', r.id::text FROM receipt r WHERE r.status IN ('waiting', 'unmatched')
UNION ALL SELECT 'feed', p.event_id::text FROM feed_pending f JOIN transition p ON p.id = f.transition_id
"""
DELIVERED: Final = "SELECT event_id::text FROM intent WHERE event_id = ANY(%s::uuid[]) AND state = 'delivered'"
IN_REVIEW: Final = "SELECT event_id::text FROM review WHERE event_id = ANY(%s::uuid[]) AND settled_at IS NULL"
UNANSWERED: Final = {
    category: f"""
SELECT a.id::text, a.prepared_at FROM attempt a JOIN intent i ON i.id = a.intent_id AND i.category = '{category}'
WHERE a.event_id = ANY(%s::uuid[]) AND a.prepared_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM observation o WHERE o.attempt_id = a.id AND o.source = 'answer')
"""
    for category in WORKERS
}
ATTEMPTS: Final = """
SELECT attempt_key, event_id::text, id::text, state FROM attempt WHERE event_id = ANY(%s::uuid[]) ORDER BY intent_id, ordinal
"""


def rules() -> dict[str, Any]:
    """Give rules without waits and hours, under which what was not found goes again in one lane only."""
    policy = hasty_policy()
    del policy["categories"]["operational"]["hours"]
    for category, rule in NOT_FOUND.items():
        policy["categories"][category]["ambiguity"]["not_found"] = rule
    policy["categories"]["operational"]["retry"] = policy["categories"]["transactional"]["retry"]
    return policy


@pytest.fixture(scope="module")
def house(world: World) -> Iterator[Crowd]:
    """Give a house of its own: its supervisor will have learnt to wait before it starts anything again."""
    environment = environment_of(world.engine.url, "kills", redis_db=5) | SHORT
    with temporary_folder() as folder, running_house(folder, environment) as running:
        crowd = furnish(running, tenant="hunted", policy=rules(), templates=TEMPLATES)
        answer = running.client.put(f"{running.ready['simulator_url']}/_sim/rules", json={"rules": CARRIER, "seed": SEED})
        assert answer.status_code == 200, answer.text
        yield crowd
        crowd.valkey.close()


def bodies() -> list[dict[str, Any]]:
    """Write the requests: four events for each of five hundred people, every text another one."""
    numbers = [f"+1{area}55501{n:02d}" for area in ("301", "302", "303", "304", "305") for n in range(100)]
    templates = list(TEMPLATES)
    return [
        {
            "type": "class.opening",
            "subject": f"c-{n}",
            "recipient": {"ref": f"m-{n % len(numbers)}", "sms": numbers[n % len(numbers)]},
            "template": templates[n % len(templates)],
            "data": {"class": f"Spin {n}"},
            "key": f"kills/{n}",
        }
        for n in range(EVENT_COUNT)
    ]


def units_of(requests: Sequence[dict[str, Any]]) -> list[Sequence[dict[str, Any]]]:
    """Cut the requests into batches and singles, by turns."""
    units, chance = [], random.Random(SEED)  # noqa: S311 - nobody is to be kept from guessing it
    start = 0
    while start < len(requests):
        size = chance.choice((1, 1, BATCH_COUNT))
        units.append(requests[start : start + size])
        start += size
    return units


def post_unit(house: Crowd, unit: Sequence[dict[str, Any]]) -> list[str]:
    """Post one batch, or one event on its own, until it is answered; return the events' ids."""
    if len(unit) == 1:
        return [house.post_surely("/v1/events", unit[0])["event_id"]]
    results = house.post_surely("/v1/events/batch", {"events": list(unit)})["results"]
    assert {result["status"] for result in results} <= {200, 202}, results
    return [result["event_id"] for result in results]


def post_all(house: Crowd, units: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Post everything, from several clients at a steady pace; return the events' ids."""
    never = threading.Event()

    def post(unit: Sequence[dict[str, Any]]) -> list[str]:
        never.wait(POSTING_SECONDS * CLIENTS / len(units))
        return post_unit(house, unit)

    with ThreadPoolExecutor(CLIENTS, thread_name_prefix="client") as pool:
        return [event_id for ids in pool.map(post, units) for event_id in ids]


def accounts(house: Crowd, events: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Give what the carrier took of each event: the attempts' ids and states, in order; the outside truth beside ours."""
    book = house.house.client.get(f"{house.house.ready['simulator_url']}/_sim/accepted").json()
    taken = {row["key"] for row in book}
    attempts = house.asked(ATTEMPTS, events)
    assert taken <= {key for key, *_ in attempts}, "the carrier took what is in no book"
    found: dict[str, list[tuple[str, str]]] = {event_id: [] for event_id in events}
    for key, event_id, attempt_id, state in attempts:
        if key in taken:
            found[event_id].append((attempt_id, state))
    return found


def test_kills_at_random_lose_nothing_and_send_nothing_twice(house: Crowd) -> None:
    """That the books balance is checked after this by the package's audit."""
    with Killer(house, SEED, KILL_COUNT) as killer:
        events = post_all(house, units_of(bodies()))
        eventually(lambda: len(killer.kills), until=lambda n: n >= KILL_COUNT, seconds=60)
    eventually(lambda: house.asked(OPEN, events), until=lambda still: not still, seconds=SETTLED_WITHIN)
    ends = {(category, state, cause) for category, state, _, cause, _ in house.asked(ENDS, events)}
    told = f"seed {SEED}; kills {killer.counts()}; posted again {dict(house.repeats)}; ends {house.asked(ENDS, events)}"

    # Every event once, and ended in a way that the documents know.
    assert house.house.sql(EVENTS) == [(EVENT_COUNT, EVENT_COUNT)], told
    assert len(set(events)) == EVENT_COUNT, told
    assert ends <= EXPLAINED, told
    eventually(lambda: house.house.sql(LEFT_BEHIND), until=lambda rows: not rows)

    # No attempt went on the wire twice, and none followed another but one that had failed for certain.
    requests = house.house.client.get(f"{house.house.ready['simulator_url']}/_sim/requests").json()
    assert {key: n for key, n in Counter(row["key"] for row in requests).items() if n > 1} == {}, told
    taken = accounts(house, events)
    assert {e: texts for e, texts in taken.items() if {state for _, state in texts[:-1]} - {"failed"}} == {}, told

    # Whoever was asked about it: a person only about what the carrier never had.
    asked = {event_id for (event_id,) in house.asked(IN_REVIEW, events)}
    assert {event_id for event_id in asked if taken[event_id]} == set(), told
    delivered = {event_id for (event_id,) in house.asked(DELIVERED, events)}
    assert {event_id for event_id in delivered if [state for _, state in taken[event_id]][-1:] != ["delivered"]} == set(), told

    # What we never heard an answer of was in the hands of a process that was killed: a window of each at most.
    assert unexplained(house, events, killer.kills) == [], told


def unexplained(house: Crowd, events: Sequence[str], kills: Sequence[Kill]) -> list[str]:
    """Name the attempts that lack an answer for another cause than a kill of their lane's worker."""
    return [
        attempt_id
        for category, worker in WORKERS.items()
        for attempt_id in find_unexplained(
            dict(house.asked(UNANSWERED[category], events)),
            [kill for kill in kills if kill.name.split()[0] == worker],
            window=WINDOW,
            call_within=CALL_WITHIN,
        )
    ]
