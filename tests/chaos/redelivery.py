"""A hasty neighbour, who takes everybody's messages after a second, and an ear for what workers begin and end."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from celery import Celery

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

VISIBILITY_SECONDS: Final = 1
NEIGHBOUR: Final = (
    *("celery", "-A", "tasks.celery", "worker", "-Q", "urgent", "-c", "2", "-n", "neighbour@%h"),
    *("-E", "--without-mingle", "--without-gossip", "-l", "INFO"),
)


@dataclass
class Ear:
    """What the workers said of their handoff tasks, in the order in which the broker passed it on."""

    said: list[tuple[str, str]] = field(default_factory=list)
    """(task id, started or succeeded)."""
    _names: dict[str, str] = field(default_factory=dict)

    def hear(self, event: Mapping[str, Any]) -> None:
        """Note one event; only the first word of a task says its name."""
        word, task_id = event["type"].removeprefix("task-"), event["uuid"]
        self._names.setdefault(task_id, event.get("name") or "")
        if self._names[task_id] == "handoff" and word in {"started", "succeeded"}:
            self.said.append((task_id, word))

    def begun_again(self) -> set[str]:
        """Name the tasks that were begun a second time before anybody had ended them."""
        running: set[str] = set()
        again: set[str] = set()
        for task_id, word in list(self.said):
            if word == "started" and task_id in running:
                again.add(task_id)
            (running.add if word == "started" else running.discard)(task_id)
        return again

    def ended(self) -> set[str]:
        """Name the tasks that somebody ended."""
        return {task_id for task_id, word in list(self.said) if word == "succeeded"}


@contextmanager
def hasty_neighbour(house: Crowd) -> Iterator[Ear]:
    """Run one more worker, whose broker gives a message to somebody else after a second; listen to all of them.

    What lies unacknowledged is the broker's, not a worker's: whoever looks first, by a time-out of its own,
    takes the messages of all. So the house's own workers lose theirs to it, and it loses its own.
    """
    ear = Ear()
    with (
        Celery("ear", broker=house.house.ready["redis_url"], set_as_current=False) as stranger,
        listening(stranger, ear),
        house.beside(*NEIGHBOUR, DAYBOOK_VISIBILITY_SECONDS=str(VISIBILITY_SECONDS)) as log,
    ):
        eventually(lambda: log.exists() and " ready." in log.read_text(), seconds=60)
        yield ear


@contextmanager
def listening(stranger: Celery, ear: Ear) -> Iterator[None]:
    """Let an ear hear the workers' events until the block ends."""
    names = ("task-received", "task-started", "task-succeeded")
    with stranger.connection_for_read() as connection:
        receiver = stranger.events.Receiver(connection, handlers=dict.fromkeys(names, ear.hear))
        thread = threading.Thread(target=receiver.capture, kwargs={"wakeup": False}, daemon=True)
        thread.start()
        try:
            yield
        finally:
            receiver.should_stop = True  # looked at once a second
            thread.join(10)
