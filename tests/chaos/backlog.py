"""A backlog: a few bulk events accepted by the API, held back, and copied set-based into as many as wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg.sql import SQL, Composed, Identifier

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

# Every copy has ids and keys of its own, and the person, the texts and the decision of its original.
COPIES: Final = """
CREATE TEMPORARY TABLE copy ON COMMIT DROP AS
SELECT i.event_id AS original_event, a.id AS original, n, uuidv7() AS event_id, uuidv7() AS intent_id, uuidv7() AS attempt_id,
       uuidv7() AS decision_id, uuidv7() AS transition_id
FROM intent i JOIN attempt a ON a.intent_id = i.id CROSS JOIN generate_series(1, %s) n
WHERE i.event_id = ANY(%s::uuid[])
"""
OURS: Final = {name: f"c.{name}" for name in ("event_id", "intent_id", "attempt_id")}
# Keys follow from what an event says; the subject names the occasion.
ANOTHER: Final = "t.subject || '-' || c.n"
# table: (how a row finds its copies, what is different in them)
COPIED: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "event": (
        "t.id = c.original_event",
        {"id": "c.event_id", "subject": ANOTHER}
        | dict.fromkeys(("key", "business_key"), f"replace(t.business_key, t.subject, {ANOTHER})"),
    ),
    "intent": (
        "t.event_id = c.original_event",
        {
            "id": "c.intent_id",
            "event_id": "c.event_id",
            "business_key": "(SELECT e.business_key FROM event e WHERE e.id = c.event_id)",
        },
    ),
    "attempt": (
        "t.id = c.original",
        {
            "id": "c.attempt_id",
            "event_id": "c.event_id",
            "intent_id": "c.intent_id",
            "attempt_key": "t.attempt_key || '-' || c.n",
        },
    ),
    "decision": ("t.attempt_id = c.original", OURS | {"id": "c.decision_id"}),
    "transition": ("t.attempt_id = c.original", OURS | {"id": "c.transition_id"}),
    "outbox": ("t.attempt_id = c.original", OURS | {"decision_id": "c.decision_id"}),
}
PLACES: Final = """
INSERT INTO feed (transition_id, intent_id, tenant_id, recipient_ref)
SELECT c.transition_id, c.intent_id, i.tenant_id, i.recipient_ref FROM copy c JOIN intent i ON i.id = c.intent_id ORDER BY 1
"""
COLUMNS: Final = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %s AND is_generated = 'NEVER' ORDER BY ordinal_position
"""

# What a lease is worth is written down by the database: a row that is leased again had lost one.
JOURNAL: Final = """
CREATE TABLE lost_lease (attempt_id uuid, lease bigint, at timestamptz DEFAULT clock_timestamp());
CREATE FUNCTION note_lost_lease() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO lost_lease (attempt_id, lease) VALUES (OLD.attempt_id, OLD.lease);
    RETURN NULL;
END $$;
CREATE TRIGGER lost_lease AFTER UPDATE OF lease ON outbox FOR EACH ROW
    WHEN (OLD.lease IS NOT NULL AND NEW.lease IS NOT NULL AND NEW.lease <> OLD.lease) EXECUTE FUNCTION note_lost_lease();
"""

HANDED_OFF: Final = """
SELECT count(*) FROM attempt a JOIN intent i ON i.id = a.intent_id
WHERE i.category = 'marketing' AND a.prepared_at IS NOT NULL
"""
WAITING: Final = "SELECT count(*) FROM outbox WHERE lane = 'bulk'"
# What ran out is leased again only after everything that never was: most of it still stands there.
LOST: Final = """
SELECT (SELECT count(*) FROM lost_lease), (SELECT count(*) FROM outbox WHERE lane = 'bulk' AND leased_until <= clock_timestamp())
"""
IN_HAND: Final = """
SELECT (SELECT count(*) FROM outbox WHERE lane = 'bulk' AND leased_until > clock_timestamp())
     + (SELECT count(*) FROM attempt WHERE state = 'prepared')
"""
# Bulk that was begun after an urgent event was there, and before it was.
OVERTAKEN: Final = """
SELECT count(*) FROM attempt b JOIN intent i ON i.id = b.intent_id AND i.category = 'marketing', attempt u
WHERE u.event_id = %s AND u.ordinal = 1 AND b.prepared_at > u.created_at AND b.prepared_at < u.prepared_at
"""

HALF_FULL: Final = 50_000
"""Tokens to begin with, of twice as many: the bucket neither runs dry nor over, so that its level tells what was taken."""


@dataclass
class Backlog:
    """A house in which bulk waits, and what the books and the bucket say of it."""

    crowd: Crowd
    rate_per_second: int
    total: int = 0
    _began: float = field(default=0.0)

    @property
    def _bucket(self) -> str:
        (route,) = self.sql("SELECT id::text FROM route WHERE name = %s", f"{self.crowd.tenant}-simulator")
        return f"daybook:tokens:{route[0]}"

    def sql(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Ask the books."""
        return self.crowd.house.sql(statement, *params)

    def fill(self, originals: Sequence[str], *, copies_of_each: int) -> None:
        """Copy events that an operator holds back."""
        with psycopg.connect(self.crowd.house.ready["database_url"].replace("+psycopg", "")) as connection:
            connection.execute(JOURNAL)
            connection.execute(COPIES, [copies_of_each, list(originals)])
            for table, (join, changes) in COPIED.items():
                names = [name for (name,) in connection.execute(COLUMNS, [table])]
                connection.execute(copying(table, names, join, changes))
            connection.execute(PLACES)
        self.total = len(originals) * (copies_of_each + 1)

    def let_go(self) -> None:
        """Fill the bucket half, and take the brake off."""
        seconds, micros = self.crowd.valkey.time()
        self._began = seconds * 1000 + micros / 1000
        self.crowd.valkey.hset(self._bucket, mapping={"tokens": HALF_FULL, "at": self._began})
        assert self.crowd.house.daybook("resume", *self._lane("go")).returncode == 0

    def hold(self) -> None:
        """Put the brake on, and wait until nothing is in anybody's hands."""
        held = self.crowd.house.daybook("pause", *self._lane("stop"))
        assert held.returncode == 0, held.stderr
        eventually(lambda: self.sql(IN_HAND), until=lambda rows: rows == [(0,)], seconds=40)

    def _lane(self, reason: str) -> tuple[str, ...]:
        return ("--tenant", self.crowd.tenant, "--lane", "bulk", "--reason", reason)

    def tokens_taken(self) -> int:
        """Say how many tokens were taken and not given back since the brake was off."""
        tokens, at = (float(value or "nan") for value in self.crowd.valkey.hmget(self._bucket, "tokens", "at"))
        return round(HALF_FULL + (at - self._began) * self.rate_per_second / 1000 - tokens)

    def tokens_lost(self) -> tuple[int, float]:
        """Say how many tokens grew old and were replaced, and how many at most a bucket gained while others were out."""
        logs = (self.crowd.house.folder / "state" / "logs").glob("worker*.log")
        told = [json.loads(line) for log in logs for line in log.read_text(errors="replace").splitlines() if '"token' in line]
        replaced = sum(each["event"] == "token_replaced" for each in told)
        back = [each for each in told if each["event"] == "tokens_given_back"]
        return replaced, sum(min(each["count"], each["age_seconds"] * self.rate_per_second) for each in back)

    def handed_off(self) -> int:
        """Count the bulk attempts that were begun."""
        return int(self.sql(HANDED_OFF)[0][0])

    def await_handed_off(self, least: int) -> None:
        """Wait until so many bulk attempts were begun, as long as no lease ran out before its message was worked on."""
        eventually(lambda: (self.handed_off(), self.sql(LOST)), until=lambda s: s[0] >= least or s[1] != [(0, 0)], seconds=60)
        assert self.sql(LOST) == [(0, 0)], "leases ran out in the queue (leased again since, not yet)"


def copying(table: str, names: Sequence[str], join: str, changes: Mapping[str, str]) -> Composed:
    values = [SQL(changes[name]) if name in changes else SQL("t.{}").format(Identifier(name)) for name in names]
    return SQL("INSERT INTO {table} ({names}) SELECT {values} FROM {table} t JOIN copy c ON {join}").format(
        table=Identifier(table),
        names=SQL(", ").join(map(Identifier, names)),
        values=SQL(", ").join(values),
        join=SQL(join),
    )
