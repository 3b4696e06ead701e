"""Tasks delivered twice while the first is still at it: the broker's second copy finds nothing to do in the books."""

from __future__ import annotations

import pytest

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd
from tests.chaos.redelivery import hasty_neighbour
from tests.e2e.house import new_number

pytestmark = [pytest.mark.processes, pytest.mark.chaos]


def test_a_page_delivered_again_while_its_worker_stands_between_prepared_and_the_first_byte(house: Crowd) -> None:
    """The copy comes and goes before a byte has left: whoever prepared is the only one who may write."""
    house.slow(low_ms=20, high_ms=50)
    with hasty_neighbour(house) as ear:
        with house.held("flows.handoff._prepare/committed#1"):
            events = house.post_together(20)
            house.await_held()
            eventually(lambda: ear.begun_again() & ear.ended(), seconds=30)

        house.assert_one_text_each(events)


def test_pages_delivered_again_while_the_carrier_takes_its_time(house: Crowd, patient: Crowd) -> None:
    """Every answer takes longer than the broker waits; and a person who is left alone afterwards stays so."""
    house.slow(low_ms=2200, high_ms=3500)
    member = {"ref": "m-twice", "sms": new_number()}
    with hasty_neighbour(house) as ear:
        due = house.house.sql("SELECT clock_timestamp() + interval '2 seconds'")[0][0].isoformat()
        pair = [
            patient.house.post(patient.house.request() | {"recipient": member, "not_before": due})["event_id"] for _ in range(2)
        ]
        events = house.post(32, not_before=due)

        house.assert_one_text_each(events)
        states = eventually(
            lambda: {event_id: patient.house.last(event_id)["state"] for event_id in pair},
            until=lambda states: sorted(states.values()) == ["deferred", "delivered"],
            seconds=40,
        )

    assert ear.begun_again(), "the broker delivered nothing twice: nothing was tested"
    waiting = next(event_id for event_id, state in states.items() if state == "deferred")
    assert patient.house.last(waiting)["reason"] == "cooldown"
    assert len(patient.house.accepted(member["sms"])) == 1
