"""A reader of history: follows one cursor over HTTP in small pages, and keeps everything it was shown."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

from tests.awaiting import eventually
from tests.e2e.house import House

LIMIT: Final = 7

TRANSITIONS: Final = """
SELECT t.id::text FROM transition t JOIN event e ON e.id = t.event_id WHERE e.tenant_id = (SELECT id FROM tenant WHERE name = %s)
"""


@dataclass
class Reader:
    """One client of a tenant's history."""

    house: House
    tenant: str
    cursor: str | None = None
    items: list[dict[str, Any]] = field(default_factory=list)

    def read_page(self) -> int:
        """Read the next page; return how many items it had."""
        params = {"limit": LIMIT} | ({"after": self.cursor} if self.cursor else {})
        answer = self.house.call("GET", "/v1/history", params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        self.items += page["items"]
        self.cursor = page["next_cursor"]
        return len(page["items"])

    def seen(self) -> set[str]:
        """Name the transitions that it was shown."""
        return {item["id"] for item in self.items}

    def written(self) -> set[str]:
        """Name the tenant's transitions that are committed."""
        return {row[0] for row in self.house.sql(TRANSITIONS, self.tenant)}

    def missing(self) -> int:
        """Read on, and count what was committed before and is still not shown."""
        written = self.written()
        while self.read_page():
            pass
        return len(written - self.seen())

    def catch_up(self) -> None:
        """Read until everything that is committed was shown."""
        eventually(self.missing, until=lambda missing: missing == 0, seconds=20)

    def elsewhere(self, house: House) -> Reader:
        """Go on at another house from the same cursor."""
        return replace(self, house=house, items=list(self.items))

    def assert_each_once_and_in_order(self) -> None:
        """Check that it was shown each transition once, and each intent's from the first on without a gap."""
        ids = [item["id"] for item in self.items]
        assert len(ids) == len(set(ids)), "a transition was shown twice"
        orders: dict[str, list[int]] = {}
        for item in self.items:
            orders.setdefault(item["intent_id"], []).append(item["n"])
        assert {i: order for i, order in orders.items() if order != list(range(1, len(order) + 1))} == {}
