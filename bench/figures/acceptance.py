"""Acceptance: one event per request beside pgbench, and batches beside set-based psycopg."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

import orjson
from sqlalchemy import Table

from app.ground.db import Statement, insertion
from app.ledger.accept import WRITE_ORDER
from bench import pgbench, traffic
from bench.cpu import Spending
from bench.figure import Figure, Sitting, interleaved, weighed
from bench.house import House, stopwatch
from bench.replay import transaction
from bench.town import PAGE, Town, events
from models.base import Base
from models.ledger import Joining

CONNECTIONS: Final = 16
WARM_UP: Final = 64


def single(sitting: Sitting, count: int) -> list[Figure]:
    """Post events one by one over 16 connections; against pgbench writing the same rows with 16 clients."""
    house, per_client = sitting.house, max(1, count // CONNECTIONS)
    script = "\n".join(
        [
            f"\\set n :client_id * {per_client} + :i + 1",
            "\\set i :i + 1",
            transaction(sitting.tape.insertions("accepted", ":n", ":n")),
        ]
    )
    requests = [_post("/v1/events", sitting.plain, event) for event in events(per_client * CONNECTIONS)]

    our_cpu, their_cpu = Spending(house), Spending(house)

    def ours() -> float:
        house.wipe(scratch=False)
        with our_cpu.of(len(requests)):
            return len(requests) / traffic.post(house.base_url, requests, connections=CONNECTIONS).only(202).seconds

    def theirs() -> float:
        house.wipe(scratch=True)
        with their_cpu.of(len(requests)):
            return pgbench.rate(house, script, clients=CONNECTIONS, transactions=per_client, variables={"i": 0})

    with house.running("web"):
        traffic.post(house.base_url, requests[:WARM_UP], connections=CONNECTIONS)
        our_rates, their_rates = interleaved(sitting.runs, ours, theirs)
    sizes = {"events": len(requests), "connections": CONNECTIONS, "runs": sitting.runs}
    notes = weighed(house, ours=len(requests), theirs=len(requests))
    against = "pgbench, the same rows, one transaction each, 16 clients"
    return [
        Figure(
            "accept-single",
            "POST /v1/events, 16 connections",
            against,
            0.25,
            None,
            sizes,
            our_rates,
            their_rates,
            notes,
            our_cpu.medians(),
            their_cpu.medians(),
        )
    ]


def batch(sitting: Sitting, count: int) -> list[Figure]:
    """Post pages of 500 over one connection; against one psycopg connection that writes those very rows."""
    house = sitting.house
    asked = events(count)
    pages = [asked[start : start + PAGE] for start in range(0, count, PAGE)]
    requests = [_post("/v1/events/batch", sitting.plain, {"events": page}) for page in pages]
    written: list[list[Statement]] = []

    our_cpu, their_cpu = Spending(house), Spending(house)

    def ours() -> float:
        house.wipe(scratch=False)
        with our_cpu.of(count):
            return count / traffic.post(house.base_url, requests, connections=1).only(200).seconds

    def theirs() -> float:
        written[:] = written or _pages_of(house)
        house.wipe(scratch=True)
        with their_cpu.of(count):
            return count / _write(house, written)

    with house.running("web"):
        ours()  # the first page of each web process pays for what is read once; its rows are the counterpart's
        our_rates, their_rates = interleaved(sitting.runs, ours, theirs)
    sizes = {"events": count, "page": PAGE, "connections": 1, "runs": sitting.runs}
    notes = weighed(house, ours=count, theirs=count)
    against = "psycopg, the same rows set-based, one transaction a page"
    return [
        Figure(
            "accept-batch",
            "POST /v1/events/batch of 500",
            against,
            0.25,
            None,
            sizes,
            our_rates,
            their_rates,
            notes,
            our_cpu.medians(),
            their_cpu.medians(),
        )
    ]


def _post(path: str, town: Town, body: Mapping[str, Any]) -> bytes:
    headers = {"Authorization": f"Bearer {town.api_key}", "Content-Type": "application/json"}
    return traffic.request("POST", path, orjson.dumps(body), headers)


def _pages_of(house: House) -> list[list[Statement]]:
    """Read the rows that our own pages wrote; lay them out as our acceptance does, a list of statements per page."""
    pages: dict[object, list[Statement]] = defaultdict(list)
    with house.connect() as connection:
        # An event's page is the transaction that wrote it.
        page_of: dict[UUID, object] = dict(connection.execute("SELECT id, xmin::text FROM event").fetchall())
        events_of_key = dict(connection.execute("SELECT person_key_id, id FROM event").fetchall())
        event_of_intent = dict(connection.execute("SELECT id, event_id FROM intent").fetchall())
        for model, column in WRITE_ORDER:
            if model is Joining:
                continue
            by_page: dict[object, list[dict[str, Any]]] = defaultdict(list)
            for row in _rows(house, model):
                event_id = (
                    row.get("event_id") or event_of_intent.get(row.get("intent_id")) or events_of_key.get(_key(row), row["id"])
                )
                by_page[page_of[event_id]].append(row)
            for page, rows in by_page.items():
                pages[page].append(insertion(model, sorted(rows, key=lambda row: str(row[column]))))
    return list(pages.values())


def _key(row: Mapping[str, Any]) -> object:
    """Give the person key that a row of the vault belongs to."""
    return row.get("person_key_id", row.get("id"))


def _rows(house: House, model: type[Base]) -> Sequence[dict[str, Any]]:
    table = model.__table__
    assert isinstance(table, Table)  # noqa: S101 - every mapped class has one
    names = [str(column.name) for column in table.columns if column.computed is None]  # orjson takes no subclass as a key
    with house.connect() as connection:
        found = connection.execute(_select(table.name, names))
        return [dict(zip(names, values, strict=True)) for values in found]


def _select(table: str, names: Sequence[str]) -> bytes:
    return f"SELECT {', '.join(names)} FROM {table}".encode()  # noqa: S608 - our own names


def _write(house: House, pages: Sequence[Sequence[Statement]]) -> float:
    """Write pages over one connection, each in one transaction and one round trip; give the seconds."""
    with house.connect(scratch=True) as connection:
        connection.prepare_threshold = 0
        started = stopwatch()
        for page in pages:
            with connection.transaction(), connection.pipeline():
                for statement, params in page:
                    connection.execute(statement.encode(), params)
        return stopwatch() - started
