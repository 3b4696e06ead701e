"""A waiting list: thousands of people of one occasion, more of whom are posted all the time, and what the carrier got of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, cycle
from typing import Any, Final

import httpx
import psycopg

from tests.chaos.backlog import COLUMNS, COPIED, COPIES, PLACES, copying
from tests.chaos.crowd import Crowd
from tests.e2e.house import new_number

# Every copy is a person of its own, with the number and the key of its original; the occasion is the same.
ITS_OWN: Final = "ALTER TABLE copy ADD COLUMN person_key_id uuid DEFAULT uuidv7(), ADD COLUMN contact_id uuid DEFAULT uuidv7()"
ANOTHER: Final = "t.recipient_ref || '-' || c.n"
KEY: Final = f"replace(t.business_key, t.recipient_ref, {ANOTHER})"
ITS_REF: Final = {"recipient_ref": ANOTHER, "business_key": KEY}
PEOPLE: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "person_key": (
        "t.id = (SELECT e.person_key_id FROM event e WHERE e.id = c.original_event)",
        {"id": "c.person_key_id", "name": "t.name || '-' || c.n"},
    ),
    "contact": (
        "t.id = (SELECT i.contact_id FROM intent i WHERE i.event_id = c.original_event)",
        {"id": "c.contact_id", "recipient_ref": ANOTHER, "person_key_id": "c.person_key_id"},
    ),
    **COPIED,
    "event": (COPIED["event"][0], ITS_REF | {"id": "c.event_id", "key": KEY, "person_key_id": "c.person_key_id"}),
    "intent": (COPIED["intent"][0], ITS_REF | {"id": "c.intent_id", "event_id": "c.event_id", "contact_id": "c.contact_id"}),
}
THREADS: Final = 4
EVERY_SECONDS: Final = 0.08
"""Of each thread: fifty a second in all, where the machine has the time."""


@dataclass(frozen=True, slots=True)
class Posted:
    """One event that was accepted, and between which moments of this process."""

    event_id: str
    asked_at: float
    answered_at: float


@dataclass
class WaitingList:
    """One occasion at a running house."""

    crowd: Crowd
    subject: str
    numbers: Iterator[str] = field(default_factory=lambda: cycle([new_number() for _ in range(40)]))
    posted: list[Posted] = field(default_factory=list)
    _refs: Iterator[int] = field(default_factory=lambda: count(1))

    def request(self, **fields: Any) -> dict[str, Any]:
        """Ask for one more person."""
        body = self.crowd.house.request(subject=self.subject, sms=next(self.numbers), **fields)
        return body | {"recipient": body["recipient"] | {"ref": f"late-{next(self._refs)}"}}

    def fill(self, originals: Sequence[str], *, copies_of_each: int) -> None:
        """Copy people who are held back."""
        with psycopg.connect(self.crowd.house.ready["database_url"].replace("+psycopg", "")) as connection:
            connection.execute(COPIES, [copies_of_each, list(originals)])
            connection.execute(ITS_OWN)
            for table, (join, changes) in PEOPLE.items():
                names = [name for (name,) in connection.execute(COLUMNS, [table])]
                connection.execute(copying(table, names, join, changes))
            connection.execute(PLACES)

    @contextmanager
    def posting(self) -> Iterator[None]:
        """Go on posting people until the block ends."""
        stop = threading.Event()
        with ThreadPoolExecutor(THREADS, thread_name_prefix="posting") as pool:
            running = [pool.submit(partial(self._post_until, stop)) for _ in range(THREADS)]
            try:
                yield
            finally:
                stop.set()
        for each in running:
            each.result()

    def _post_until(self, stop: threading.Event) -> None:
        with httpx.Client(timeout=60, headers={"Authorization": f"Bearer {self.crowd.house.api_key}"}) as client:
            while not stop.wait(EVERY_SECONDS):
                self.posted.append(self._post(client, self.request()))

    def _post(self, client: httpx.Client, body: Mapping[str, Any]) -> Posted:
        """Post until it is accepted, as an application does that is told to come again."""
        asked_at = time.monotonic()
        while True:
            response = client.post(f"{self.crowd.house.ready['base_url']}/v1/events", json=body)
            if response.status_code != httpx.codes.SERVICE_UNAVAILABLE:
                assert response.status_code in {200, 202}, response.text
                return Posted(response.json()["event_id"], asked_at, time.monotonic())

    def arrived(self) -> set[str]:
        """Name the events that the carrier was asked to send a text for, whatever it answered."""
        requests = self.crowd.house.client.get(f"{self.crowd.house.ready['simulator_url']}/_sim/requests").json()
        attempts = dict(
            self.crowd.house.sql(
                "SELECT a.attempt_key, a.event_id::text FROM attempt a JOIN event e ON e.id = a.event_id WHERE e.subject = %s",
                self.subject,
            )
        )
        return {attempts[row["key"]] for row in requests if row["key"] in attempts}
