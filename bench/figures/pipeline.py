"""The pipeline: accepted events until every handoff is recorded and in the feed, by the Procfile's workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import redis

from app.desk.pause import Scope, pause, resume
from app.ground.db import transact
from app.ground.errors import DaybookError
from bench import pgbench, plain
from bench.cpu import Spending
from bench.figure import Figure, Sitting, interleaved, weighed
from bench.house import House, stopwatch
from bench.replay import WINDOW, answered, decided, load_accepted, prepared, sequenced, transaction
from bench.town import accept_all
from policy.words import Lane

WORKERS: Final = ("worker", "worker_bulk")
CHILDREN: Final = 4
"""Each of the two workers forks two processes (WORKER_CONCURRENCY's default)."""
PAGE_WINDOWS: Final = 16
LOOK_EVERY_SECONDS: Final = 0.05
LONGEST_SECONDS: Final = 120.0
WARM_UP: Final = 40

# Asked for last: whoever was prepared has left the outbox, and is heard of a moment later.
UNFINISHED: Final = (
    "SELECT (EXISTS (SELECT FROM outbox) OR EXISTS (SELECT FROM feed_pending) "
    "OR EXISTS (SELECT FROM attempt WHERE state = 'prepared'))::int"
)
HANDED: Final = "SELECT count(*) FROM attempt WHERE state = 'submitted'"
IN_FEED: Final = "SELECT count(*) FROM feed"
UNSEQUENCED: Final = "SELECT count(*) FROM feed_pending"


class NeverDone(DaybookError):
    """The workers did not get through what was accepted."""


def pipeline(sitting: Sitting, count: int, messages: int) -> list[Figure]:
    """Hand off accepted events; against pgbench writing the same rows, and against plain Celery."""
    house = sitting.house
    clients, per_client = _shape(count)
    script = _script(sitting, per_client)
    their_count = clients * per_client * WINDOW
    our_cpu, their_cpu = Spending(house), Spending(house)

    def theirs() -> float:
        house.wipe(scratch=True)
        load_accepted(house, sitting.tape, their_count)
        with their_cpu.of(their_count):
            tps = pgbench.rate(house, script, clients=clients, transactions=per_client, variables={"i": 0})
        return tps * WINDOW

    measures = (partial(_ours, sitting, count, our_cpu), theirs, partial(_plain_celery, house, messages))
    if sitting.runs > 1:
        _ours(sitting, min(count, 256), Spending(house))  # a first start pays for what is compiled once
    our_rates, their_rates, celery_rates = interleaved(sitting.runs, *measures)
    sizes = {"events": count, "counterpart_events": their_count, "messages": messages, "workers": CHILDREN, "runs": sitting.runs}
    notes = weighed(house, ours=count, theirs=their_count)
    ours = "accepted events handed off, recorded, in the feed"
    against = f"pgbench, the same rows in the same transactions, {clients} clients"
    plain = "plain Celery, one delay() each, a task that counts, as many workers"
    return [
        Figure(
            "pipeline-pgbench",
            ours,
            against,
            0.30,
            0.50,
            sizes,
            our_rates,
            their_rates,
            notes,
            our_cpu.medians(),
            their_cpu.medians(),
        ),
        Figure("pipeline-celery", ours, plain, 3.0, 5.0, sizes, our_rates, celery_rates),
    ]


# Ours.


def _ours(sitting: Sitting, count: int, cpu: Spending) -> float:
    """Accept behind a pause, let the workers come up, and clock from its end to the last place in the feed."""
    house, everything = sitting.house, Scope()
    house.wipe(scratch=False)
    desk = {"tenant_id": sitting.plain.tenant_id, "scope": everything, "actor": "figures", "reason": "loading"}
    transact(lambda tx: pause(tx.session, **desk, now=tx.now))  # type: ignore[arg-type]  # a plain mapping has one value type
    accept_all(sitting.plain, count)
    with house.connect() as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    with house.running(*WORKERS, "beat"):
        _wait(house, UNSEQUENCED)
        with cpu.of(count):
            started = stopwatch()
            transact(lambda tx: resume(tx.session, **desk, now=tx.now))  # type: ignore[arg-type]  # as above
            _ring()
            _wait(house, UNFINISHED)
            seconds = stopwatch() - started
    handed, in_feed = house.count(HANDED), house.count(IN_FEED)
    if (handed, in_feed) != (count, 2 * count):
        raise NeverDone(f"of {count} events {handed} were handed off, and {in_feed} transitions are in the feed")
    return count / seconds


def _ring() -> None:
    from tasks.doorbell import ring  # noqa: PLC0415 - it reads the settings, which the house makes

    for lane in Lane:
        ring(lane)


def _wait(house: House, statement: str) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    with house.connect() as connection:
        while connection.execute(statement.encode()).fetchone() != (0,):
            if time.monotonic() > deadline:
                raise NeverDone(f"not done after {LONGEST_SECONDS:.0f} seconds")
            time.sleep(LOOK_EVERY_SECONDS)


# pgbench.


def _shape(count: int) -> tuple[int, int]:
    """Give clients, and windows per client: whole pages each, at least as many events as asked."""
    per_client = max(1, -(-count // (CHILDREN * WINDOW)))
    page = min(PAGE_WINDOWS, per_client)
    return CHILDREN, -(-per_client // page) * page


def _script(sitting: Sitting, per_client: int) -> str:
    """Write one window per turn: before the first of a page its decisions and leases, after its last the feed."""
    tape, page = sitting.tape, min(PAGE_WINDOWS, per_client)
    return "\n".join(
        [
            f"\\set lo (:client_id * {per_client} + :i) * {WINDOW} + 1",
            f"\\set hi :lo + {WINDOW - 1}",
            f"\\set page_hi :lo + {page * WINDOW - 1}",
            f"\\set page_lo :hi - {page * WINDOW - 1}",
            f"\\set is_first (:i % {page}) = 0",
            "\\set i :i + 1",
            f"\\set is_last (:i % {page}) = 0",
            "\\if :is_first",
            transaction(decided(tape, ":lo", ":page_hi")),
            "\\endif",
            transaction(prepared(tape, ":lo", ":hi")),
            transaction(answered(tape, ":lo", ":hi")),
            "\\if :is_last",
            transaction(sequenced(tape, "handed", ":page_lo", ":hi")),
            "\\endif",
        ]
    )


# Plain Celery.


def _plain_celery(house: House, messages: int) -> float:
    """Send one message per event and clock until the last was counted; the workers are at work before."""
    counted = house.folder / "counted"
    counted.write_bytes(b"")
    with redis.Redis.from_url(house.broker_url) as client:
        client.flushdb()
    with _plain_workers(house):
        _send(house, WARM_UP)
        _await_count(counted, WARM_UP)
        started = stopwatch()
        _send(house, messages)
        _await_count(counted, WARM_UP + messages)
        return messages / (stopwatch() - started)


def _send(house: House, messages: int) -> None:
    with plain.celery.connection_for_write(house.broker_url) as connection:
        producer = plain.celery.amqp.Producer(connection)
        for n in range(messages):
            plain.count.apply_async(queue=plain.QUEUES[n % len(plain.QUEUES)], producer=producer)


def _await_count(counted: Path, messages: int) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while counted.stat().st_size < messages:
        if time.monotonic() > deadline:
            raise NeverDone(f"plain Celery counted {counted.stat().st_size} of {messages}")
        time.sleep(LOOK_EVERY_SECONDS)


@contextmanager
def _plain_workers(house: House) -> Iterator[None]:
    """Run as many workers as the Procfile does, with the same number of processes each."""
    with ExitStack() as stack:
        for queue in plain.QUEUES:
            command = [sys.executable, "-m", "celery", "-A", "bench.plain", "worker", "-Q", queue, "-c", "2", "-n", f"{queue}@%h"]
            stack.enter_context(house.child(queue, command, BROKER_URL=house.broker_url))
        yield
