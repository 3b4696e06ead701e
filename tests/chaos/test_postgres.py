"""Postgres restarted, politely and at once, while carriers answer: no answer is lost, and nothing goes out twice."""

from __future__ import annotations

import signal

import pytest

from tests.awaiting import eventually
from tests.chaos.crowd import Crowd

pytestmark = [pytest.mark.processes, pytest.mark.chaos]

# What a carrier took, and of which its own answer is nowhere in the books.
UNANSWERED = """
SELECT a.id FROM attempt a WHERE a.event_id = ANY(%s::uuid[]) AND a.state IN ('submitted', 'unknown', 'delivered')
  AND NOT EXISTS (SELECT FROM observation o WHERE o.attempt_id = a.id AND o.source = 'answer')
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_restarted_while_carriers_answer(house: Crowd, number: signal.Signals) -> None:
    """SIGINT is a fast shutdown, SIGQUIT an immediate one: the first says goodbye, the second recovers from its log."""
    house.slow(low_ms=500, high_ms=1500)
    events = house.post_together(30)
    eventually(lambda: sum(house.texts(events).values()) >= 10)
    house.kill("postgres", number)
    house.await_ready()
    events += house.post(10)

    house.assert_one_text_each(events)
    # A receipt may be there before the answer is.
    eventually(lambda: house.asked(UNANSWERED, events), until=lambda rows: not rows)
