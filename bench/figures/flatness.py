"""Flatness: what claiming, polling, reading and reconciling touch, however many attempts are closed already."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from statistics import median
from typing import Any, Final

from flask.testing import FlaskClient

from app.flows.dispatch import dispatch
from app.flows.feed import sequence_feed
from app.flows.poll import poll_page
from bench.figure import Sitting
from bench.gauge import Gauge, NothingMeasured, Reading
from bench.house import House, stopwatch
from bench.past import Open, Past, no_journal, record_past
from bench.plans import Cost, explained, watched
from bench.town import Town
from bench.traffic import BadAnswer
from policy.words import Lane

LIMIT: Final = 1.3
ROUNDS: Final = 3
CHURN: Final = 50_000
"""So many attempts are closed while an old snapshot looks on, and none more than there are; a dump of an hour at 14 a second."""
# What waits when a verb is called: more than it takes at once.
DUE: Final = 600
ASKED: Final = 120
OVERDUE: Final = 20
SHOWN: Final = 160
PREPARED: Final = "SELECT count(*) FROM attempt WHERE state = 'prepared'"
PLAIN: Final = "plain"
OLD: Final = "old snapshot"

Verb = Callable[[], int]
"""A call; it says how much it found to do."""
Costs = Mapping[str, Sequence[Cost]]
Measured = Mapping[tuple[str, int], Costs]


def flatness(sitting: Sitting, sizes: Sequence[int]) -> list[Gauge]:
    """Fill so many closed attempts, one size after the other, and note what each verb touches."""
    house, town = sitting.house, sitting.plain
    past = record_past(house, town, sitting.tape)
    churn = min(CHURN, *sizes)
    measured: dict[tuple[str, int], Costs] = {}
    filling: dict[str, float] = {}
    with no_journal(house):
        for size in sorted(sizes):
            started = stopwatch()
            past.fill(size)
            filling |= {f"seconds_{size}": round(stopwatch() - started, 1), f"bytes_{size}": house.weigh(scratch=False)}
            measured[PLAIN, size] = _measure(past, town)
            with _old_snapshot(house):
                _churn(past, churn)
                measured[OLD, size] = _measure(past, town)
    first = min(sizes)
    return [
        Gauge(
            name="flatness",
            ours="shared buffers that one call touches, beside so many closed attempts",
            against=f"the same beside {first:,}",
            readings=_readings(measured, first),
            sizes={"closed": sorted(sizes), "rounds": ROUNDS, "closed_under_snapshot": churn, **filling},
            details={f"{size}, {condition}": _described(costs) for (condition, size), costs in measured.items()},
        )
    ]


@contextmanager
def _old_snapshot(house: House) -> Iterator[None]:
    """Hold a snapshot open, as a long report or a dump does: what is closed meanwhile stays for all to walk over."""
    with house.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT FROM feed_state")
        yield


def _churn(past: Past, count: int) -> None:
    """Let attempts pass through every queue there is, some minutes ago."""
    then = "now() - interval '10 min' + (n % 1000) * interval '0.5 s'"
    past.add_open(count, Open(due_at=then, next_check_at=then, state="'submitted'", received_at=then))
    past.close_all()


def _measure(past: Past, town: Town) -> Costs:
    """Call each verb on work of its own; once before, so that nothing is read for the first time."""
    costs: dict[str, list[Cost]] = {}
    with explained(past.house) as log, _client() as client:
        for turn in range(ROUNDS + 1):
            for name, verb in _verbs(past, town, client).items():
                with watched(log) as cost:
                    done = verb()
                if not done or not cost.ran:
                    raise NothingMeasured(f"{name} found nothing to do, or ran nothing that was seen")
                if turn:
                    costs.setdefault(name, []).append(cost)
            if past.house.count(PREPARED):
                raise NothingMeasured("reconcile did not put the overdue attempts in doubt")
            past.close_all()
    return costs


@contextmanager
def _client() -> Iterator[FlaskClient]:
    from web import create_app  # noqa: PLC0415 - it reads the settings, which the house makes

    with create_app().test_client() as client:
        yield client


def _verbs(past: Past, town: Town, client: FlaskClient) -> Mapping[str, Verb]:
    """Put work there for each verb, and give the verbs as the processes call them."""
    from tasks.reconcile import reconcile  # noqa: PLC0415 - as above

    middle = past.count // 2
    _wait_for_verbs(past)
    key = {"Authorization": f"Bearer {town.api_key}"}

    def get(path: str) -> Verb:
        return lambda: _read(client, path, key)

    def sweep() -> int:
        reconcile()
        return OVERDUE

    return {
        "claim": lambda: sum(len(page.attempt_ids) for page in dispatch(Lane.BULK)),
        "poll": poll_page,
        "reconcile": sweep,
        "feed": sequence_feed,
        "history": get(f"/v1/history?limit=100&after={past.cursor()}"),
        "history of a person": get(f"/v1/history?limit=100&recipient={past.person(middle)}"),
        "event detail": get(f"/v1/events/{past.event_id(middle)}"),
    }


def _wait_for_verbs(past: Past) -> None:
    """Add what is due for the claim, the poll, and each of reconcile's sweeps."""
    a_while_ago, later = "now() - interval '1 s'", "now() + interval '1 hour'"
    past.add_open(DUE, Open())
    past.add_open(ASKED, Open(due_at="NULL", next_check_at=a_while_ago, state="'submitted'"))
    past.add_open(OVERDUE, Open(due_at="NULL", next_check_at=a_while_ago, state="'prepared'"))
    past.add_open(OVERDUE, Open(due_at=later, expires_at=a_while_ago))
    past.add_open(OVERDUE, Open(due_at="NULL", next_check_at=later, state="'submitted'", received_at="now() - interval '10 s'"))
    with past.house.connect() as connection:
        connection.execute("ANALYZE outbox, feed_pending, attempt, intent, receipt")


def _read(client: FlaskClient, path: str, headers: Mapping[str, str]) -> int:
    """Give how many items or channels an answer tells of."""
    answer = client.get(path, headers=dict(headers))
    if answer.status_code != HTTPStatus.OK:
        raise BadAnswer(f"{path} was answered with {answer.status_code}")
    told: dict[str, Any] = answer.get_json()
    return len(told["items" if "items" in told else "intents"])


def _readings(measured: Measured, first: int) -> list[Reading]:
    """Compare every size with the first, verb by verb, without and with the old snapshot."""
    return [
        Reading(
            f"{name}, {condition}, {size:,}",
            round(_buffers(costs[name]) / max(1, _buffers(measured[condition, first][name])), 3),
            "times",
            at_most=LIMIT,
            note=f"{_buffers(costs[name]):,} buffers, {_milliseconds(costs[name])} ms; "
            f"at {first:,}: {_buffers(measured[condition, first][name]):,}, {_milliseconds(measured[condition, first][name])} ms",
        )
        for (condition, size), costs in measured.items()
        if size != first
        for name in costs
    ]


def _buffers(costs: Sequence[Cost]) -> int:
    return int(median(cost.buffers for cost in costs))


def _milliseconds(costs: Sequence[Cost]) -> float:
    return round(median(cost.milliseconds for cost in costs), 1)


def _described(costs: Costs) -> dict[str, Any]:
    """Tell each verb's buffers and time, its statements, and the plan of the one that touched most."""
    return {
        name: {
            "buffers": _buffers(calls),
            "milliseconds": _milliseconds(calls),
            "statements": [
                {"buffers": one.buffers, "milliseconds": one.milliseconds, "sql": one.statement[:SHOWN]} for one in calls[-1].ran
            ],
            "heaviest": max(calls[-1].ran, key=lambda one: one.buffers).plan,
        }
        for name, calls in costs.items()
    }
