"""What was asked of the simulator, line by line in a file, so that its book outlives its process."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.book import Post
from simulator.dialect import encode
from simulator.engine import Engine
from simulator.front import Call, answer
from simulator.parse import parse_rules
from simulator.rules import Signature


class StateRefused(ValueError):
    """The state file belongs to another account or was made with another seed."""


class Journal:
    """Append entries to a file; each is one write, so killing the process tears none."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def append(self, entry: Mapping[str, object]) -> None:
        """Keep one entry."""
        self._file.write(encode(entry) + b"\n")

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def opened(engine: Engine) -> dict[str, object]:
    """Make the first entry of a file."""
    return {"op": "opened", "account_sid": engine.account.sid, "seed": engine.seed}


def called(call: Call, *, now: float) -> dict[str, object]:
    """Make the entry of a call that changes the book."""
    return {"op": "called", "at": now, "call": asdict(call)}


def ruled(rules: object, *, seed: int) -> dict[str, object]:
    """Make the entry of other rules."""
    return {"op": "ruled", "rules": rules, "seed": seed}


def reset(*, seed: int) -> dict[str, object]:
    """Make the entry of a fresh start."""
    return {"op": "reset", "seed": seed}


def posted(post: Post) -> dict[str, object]:
    """Make the entry of a receipt call."""
    return {"op": "posted", "post": asdict(post)}


def read_entries(path: Path) -> Iterator[dict[str, Any]]:
    """Read a file's entries; a last line that was never finished is cut off first."""
    if not path.exists():
        return
    kept = path.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1]
    if len(whole) < len(kept):
        path.write_bytes(whole)
    for line in whole.splitlines():
        yield json.loads(line)


def replay(engine: Engine, entries: Iterable[Mapping[str, Any]]) -> list[object]:
    """Bring an engine to where the entries end; answers the rules in force, as they were given."""
    rules: list[object] = []
    for entry in entries:
        rules = _replay_one(engine, entry, rules)
    return rules


def _replay_one(engine: Engine, entry: Mapping[str, Any], rules: list[object]) -> list[object]:
    match entry["op"]:
        case "opened":
            if entry["account_sid"] != engine.account.sid:
                raise StateRefused(f"the state file belongs to account {entry['account_sid']}")
            engine.reset(seed=entry["seed"])
        case "called":
            answer(engine, Call(**entry["call"]), now=entry["at"])
        case "ruled":
            engine.seed = entry["seed"]
            engine.use_rules(parse_rules(entry["rules"]))
            return list(entry["rules"])
        case "reset":
            engine.reset(seed=entry["seed"])
            return []
        case "posted":
            engine.book.note(Post(**(entry["post"] | {"signature": Signature(entry["post"]["signature"])})))
    return rules
