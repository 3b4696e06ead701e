"""Metrics: the state of the books as Prometheus reads it, and no scan of what is closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.flows.heartbeat import beat
from app.ground.db import rows
from app.ledger.metrics import STATEMENTS, render_metrics
from tests.conftest import World, wipe
from tests.ledger.lived import NUMBERS, Lived, live
from tests.making import clock

Samples = Mapping[tuple[str, str], float]

pytestmark = pytest.mark.usefixtures("lived")


@pytest.fixture(scope="module")
def lived(world: World) -> Iterator[Lived]:
    """Give a ledger with a past."""
    yield live(world.engine)
    wipe(world)


def samples() -> Samples:
    """Read what is rendered: (name, labels joined) -> value."""
    families = text_string_to_metric_families(render_metrics().decode())
    return {(s.name, ",".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_gauges_say_how_things_stand(session: Session) -> None:
    route = rows(session, "SELECT name FROM route")[0].name

    found = samples()

    assert found["daybook_unknown", route] == 1
    assert found["daybook_receipts_refused", ""] == 1
    assert (
        found["daybook_receipts_unmatched", ""]
        == found["daybook_receipts_waiting", ""]
        == found["daybook_inlet_waiting", ""]
        == 0
    )
    assert found["daybook_prepared_past_deadline", ""] == 0
    assert found["daybook_feed_lag_seconds", ""] == 0
    assert found["daybook_outbox_rows", "urgent,retry"] == 2
    assert found["daybook_outbox_rows", "urgent,not_before"] == 2
    assert found["daybook_outbox_leased", "urgent"] == 0
    assert found["daybook_outbox_oldest_due_seconds", "bulk"] == 0


def test_counters_come_from_the_tally(session: Session) -> None:
    found = samples()

    accepted = rows(session, "SELECT count(*) AS n FROM transition WHERE n = 1")[0].n
    handoffs = rows(
        session, "SELECT count(*) AS n FROM attempt WHERE taken OR state = 'unknown' OR error_class = 'permanent_recipient'"
    )[0].n

    assert found["daybook_accepted_total", "transactional"] == accepted
    assert found["daybook_handoffs_total", "transactional"] == handoffs
    assert found["daybook_transitions_total", "delivered"] == 1


def test_histograms_are_cumulative_and_whole() -> None:
    found = samples()

    buckets = [value for (name, _), value in found.items() if name == "daybook_acceptance_to_handoff_seconds_bucket"]

    assert buckets == sorted(buckets)
    assert buckets[-1] == found["daybook_acceptance_to_handoff_seconds_count", "transactional"]
    assert buckets[-1] == found["daybook_handoffs_total", "transactional"]
    assert found["daybook_handoff_to_terminal_seconds_count", "transactional"] > 0


def test_a_beat_that_never_was_is_infinitely_old() -> None:
    before = samples()["daybook_beat_age_seconds", ""]
    beat()

    assert before == float("inf")
    assert samples()["daybook_beat_age_seconds", ""] < 60


def test_no_personal_value_is_rendered() -> None:
    rendered = render_metrics().decode()

    assert not [number for number in NUMBERS.values() if number.lstrip("+") in rendered]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_is_closed_is_not_scanned(session: Session, statement: str) -> None:
    """The tables that only grow are reached by an index, or not at all."""
    session.execute(text("SET LOCAL enable_seqscan = off"))

    plan = "\n".join(row[0] for row in rows(session, f"EXPLAIN {statement}", now=clock(session)))

    assert not [
        line
        for line in plan.splitlines()
        if "Seq Scan on" in line and any(f" {t} " in line for t in ("attempt", "receipt", "transition", "inlet", "review"))
    ]
