"""The engine in use: behind one lock, with a wall clock and a journal."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from secrets import randbelow
from threading import RLock
from typing import TypeVar

from simulator import journal
from simulator.book import Book, Message, Post, Receipt
from simulator.dialect import Account
from simulator.engine import Engine, Plan
from simulator.front import Call, answer
from simulator.journal import Journal, StateRefused
from simulator.parse import parse_rules

T = TypeVar("T")
LARGEST_SEED = 2**31


def wall_clock() -> float:
    """Tell the seconds since 1970: the simulator is no part of Daybook, and has a clock of its own."""
    return time.clock_gettime(time.CLOCK_REALTIME)


class SimulatedCarrier:
    """A carrier that many threads may call."""

    def __init__(self, account: Account, *, seed: int | None = None, state: Path | None = None) -> None:
        # Without a seed each start has other message ids: a database that outlives the simulator may hold the old ones.
        self._engine = Engine(account, seed=randbelow(LARGEST_SEED) if seed is None else seed)
        self._lock = RLock()
        self._rules: list[object] = []
        self._journal: Journal | None = None
        if state is not None:
            self._resume(state, seed)

    def _resume(self, state: Path, seed: int | None) -> None:
        entries = list(journal.read_entries(state))
        self._rules = journal.replay(self._engine, entries)
        if entries and seed not in (None, entries[0]["seed"]):
            raise StateRefused(f"the state file was made with seed {entries[0]['seed']}, not {seed}")
        self._journal = Journal(state)
        if not entries:
            self._keep(journal.opened(self._engine))

    @property
    def account(self) -> Account:
        """Whose carrier this is."""
        return self._engine.account

    def call(self, call: Call) -> Plan:
        """Do what one HTTP call asks for; it is kept before it is answered."""
        with self._lock:
            now = wall_clock()
            plan = answer(self._engine, call, now=now)
            if call.method == "POST":
                self._keep(journal.called(call, now=now))
            return plan

    def use_rules(self, rules: list[object], *, seed: int | None = None) -> None:
        """Put other rules in force, all of them or none; RulesRefused says what is wrong with them."""
        parsed = parse_rules(rules)
        with self._lock:
            self._engine.seed = self._engine.seed if seed is None else seed
            self._engine.use_rules(parsed)
            self._rules = rules
            self._keep(journal.ruled(rules, seed=self._engine.seed))

    def reset(self, *, seed: int | None = None) -> None:
        """Forget messages, requests, receipts and rules."""
        with self._lock:
            self._engine.reset(seed=self._engine.seed if seed is None else seed)
            self._rules = []
            self._keep(journal.reset(seed=self._engine.seed))

    def rules(self) -> tuple[list[object], int]:
        """Give the rules in force, as they were given, and the seed."""
        with self._lock:
            return self._rules, self._engine.seed

    def note(self, post: Post) -> None:
        """Write a receipt call down."""
        with self._lock:
            self._engine.book.note(post)
            self._keep(journal.posted(post))

    def read(self, look: Callable[[Book], T]) -> T:
        """Look at the book while nobody writes in it."""
        with self._lock:
            return look(self._engine.book)

    def find_owed(self, receipt: Receipt) -> Message | None:
        """Find the message of a receipt that is still to be posted."""
        return self.read(lambda book: book.messages.get(receipt.sid) if book.is_pending(receipt) else None)

    def close(self) -> None:
        """Let go of the state file."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None

    def _keep(self, entry: dict[str, object]) -> None:
        if self._journal is not None:
            self._journal.append(entry)
