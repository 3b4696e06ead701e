"""Play more histories than CI does, from a seed of your choice: `make simulate ARGS="--histories 10000 --seed 7"`."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from app.ground.config import settings
from local.state import new_ring
from tests.conftest import _engine, _servers, migrate
from tests.laws.history import Failed, Step, play, search
from tests.laws.model import Rules
from tests.laws.real import build_houses, run_history

PAGE: Final = 200
Run = Callable[[Rules, Sequence[Step]], list[str]]


@contextmanager
def on_the_books() -> Iterator[Run]:
    """Start servers and give what plays a history beside the model on the real verbs."""
    with _servers() as (database_url, redis_url):
        rings = {"DAYBOOK_KEY_RING": new_ring(), "DAYBOOK_HASH_RING": new_ring()}
        os.environ.update(DATABASE_URL=database_url, REDIS_URL=redis_url, BROKER_URL=redis_url, **rings)
        os.environ["DAYBOOK_PUBLIC_URL"] = "http://127.0.0.1:8000"
        settings.cache_clear()
        migrate()
        with _engine() as engine:
            houses = build_houses(engine)
            yield lambda rules, steps: run_history(engine, houses, rules, steps)


def simulate(run: Run, *, histories: int, seed: int, longest: int) -> None:
    """Play a page of histories after another, and say how far it is."""
    started = time.monotonic()
    for first in range(seed, seed + histories, PAGE):
        last = min(first + PAGE, seed + histories)
        search(range(first, last), longest=longest, run=run)
        sys.stdout.write(f"seeds {seed} to {last - 1} hold, {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()


def main() -> int:
    """Run from the command line; 1 when a history fails, which is printed shrunk."""
    parser = ArgumentParser(prog="python -m tests.simulate", description=__doc__)
    parser.add_argument("--histories", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed; the others follow it")
    parser.add_argument("--longest", type=int, default=40, help="steps per history")
    parser.add_argument("--model", action="store_true", help="the model alone, without a database")
    args = parser.parse_args()
    try:
        if args.model:
            simulate(play, histories=args.histories, seed=args.seed, longest=args.longest)
        else:
            with on_the_books() as run:
                simulate(run, histories=args.histories, seed=args.seed, longest=args.longest)
    except Failed as failed:
        sys.stdout.write(f"{failed}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
