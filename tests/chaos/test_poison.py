"""One row that cannot be rendered any more: it is set aside and named, and those beside it go on."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest

from tests.chaos.crowd import Crowd

pytestmark = [pytest.mark.processes, pytest.mark.chaos]


def tamper(house: Crowd, body: str) -> None:
    """Change a published template behind the application's back, as only its owner in SQL can."""
    with psycopg.connect(house.house.ready["database_url"].replace("+psycopg", "")) as connection:
        connection.execute("SET LOCAL daybook.retention = 'on'")
        changed = connection.execute(
            "UPDATE template_version SET bodies = jsonb_build_object('en', %s::text) WHERE name = 'tampered'", [body]
        )
        assert changed.rowcount


def test_a_template_that_was_tampered_with_stops_its_own_event_only(house: Crowd) -> None:
    now = house.house.sql("SELECT clock_timestamp()")[0][0]
    together = (now + timedelta(seconds=3)).isoformat()
    poison = house.post(1, template="tampered", not_before=together)
    others = house.post(20, not_before=together)
    tamper(house, "A seat opened in {{ class }}, and you owe us.")

    assert house.ends([*poison, *others]) == {"delivered": 20, "artifact_mismatch": 1}
    assert house.texts(poison) == {poison[0]: 0}
    assert set(house.texts(others).values()) == {1}
    doctor = house.house.daybook("doctor")
    assert doctor.returncode == 1
    assert "1 parked (artifact_mismatch)" in doctor.stdout
