"""The laws of the simulated carrier."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.book import Submission
from simulator.dialect import Account
from simulator.engine import Engine
from simulator.parse import parse_rules
from simulator.reading import RulesRefused
from simulator.rules import FINAL, PRESETS, ReceiptLine, path_of
from tests.simulator.inbox import ANNA, BEN, CLARE, SENDER

NOON = 1_767_268_800.0

SUBMISSIONS = st.builds(
    Submission,
    to=st.sampled_from([ANNA, BEN, CLARE]),
    sender=st.just(SENDER),
    body=st.text(min_size=1, max_size=20),
    receipt_url=st.sampled_from([None, "http://127.0.0.1/r?key=a"]),
)
RULES = [
    {"match": {"to": CLARE, "probability": 0.5}, "then": {"code": 21211}},
    {"match": {"every": 3}, "then": {"accept": True, "respond": "drop"}},
    {"match": {"to": "+1201*"}, "times": 2, "then": {"latency_ms": [1, 9], "receipts": "duplicate"}},
]


def engine_after(submissions: list[Submission], *, seed: int) -> Engine:
    engine = Engine(Account(), seed=seed)
    engine.use_rules(parse_rules(RULES))
    for turn, submission in enumerate(submissions):
        engine.send(submission, now=NOON + turn)
    return engine


@given(st.lists(SUBMISSIONS), st.integers(0, 9))
def test_the_same_seed_and_requests_give_the_same_book(submissions: list[Submission], seed: int) -> None:
    assert engine_after(submissions, seed=seed).book == engine_after(submissions, seed=seed).book


@given(st.lists(SUBMISSIONS))
def test_every_request_is_in_the_book_and_every_id_is_its_own(submissions: list[Submission]) -> None:
    book = engine_after(submissions, seed=1).book

    assert len(book.requests) == len(submissions)
    assert [each.sid for each in book.requests if each.accepted] == list(book.messages)
    assert all((each.sid is None) is not each.accepted for each in book.requests)


@given(st.lists(SUBMISSIONS).flatmap(lambda s: st.tuples(st.just(s), st.permutations(s))))
def test_racing_senders_get_the_same_ids_in_any_order(orders: tuple[list[Submission], list[Submission]]) -> None:
    """An id depends on seed, number and turn only, so that a test with many workers can be told again."""
    engines = [Engine(Account(), seed=3) for _ in orders]

    [engine.send(submission, now=NOON) for engine, order in zip(engines, orders, strict=True) for submission in order]

    assert engines[0].book.messages.keys() == engines[1].book.messages.keys()


def test_another_seed_gives_other_ids() -> None:
    message = Submission(ANNA, SENDER, "hello")

    assert engine_after([message], seed=1).book.messages.keys() != engine_after([message], seed=2).book.messages.keys()


LINES = st.builds(
    ReceiptLine,
    status=st.sampled_from(["queued", "sent", "teleported", *sorted(FINAL)]),
    after_ms=st.floats(0, 1000),
)


@given(st.lists(LINES))
def test_what_polls_see_never_steps_back(lines: list[ReceiptLine]) -> None:
    path = path_of(tuple(lines))

    assert all(later.status in FINAL for step, later in pairwise(path) if step.status in FINAL)
    assert [step.after_ms for step in path] == sorted(step.after_ms for step in path)


def test_a_message_goes_its_way_with_the_time() -> None:
    engine = Engine(Account(), seed=1)
    engine.send(Submission(ANNA, SENDER, "hello"), now=NOON)
    [message] = engine.book.messages.values()

    seen = [message.step_at(NOON + after).status for after in (0, 0.049, 0.051, 0.101)]

    assert seen == ["queued", "queued", "sent", "delivered"]


def test_a_message_still_waiting_at_the_end_of_its_validity_fails() -> None:
    engine = Engine(Account(), seed=1)
    slow = {"path": [{"status": "sent", "after_ms": 60_000}], "receipts": "normal"}
    engine.use_rules(parse_rules([{"then": slow}]))

    engine.send(Submission(ANNA, SENDER, "hello", "http://127.0.0.1/r", valid_for=30), now=NOON)

    [message] = engine.book.messages.values()
    assert (message.step_at(NOON + 31).status, message.step_at(NOON + 31).error_code) == ("failed", 30036)
    assert [(each.status, each.due_at) for each in message.receipts] == [("failed", NOON + 30)]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["match", "then", "status", "to"]), inner),
)


@given(JSON)
def test_whatever_is_given_as_rules_is_used_or_refused(value: object) -> None:
    """No other error escapes, so a mistake is always a 400."""
    with suppress(RulesRefused):
        assert len(parse_rules(value)) == len(cast("list[object]", value))


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_by_name_is_its_list_of_receipts(name: str) -> None:
    [rule] = parse_rules([{"then": {"receipts": name}}])

    assert rule.then.receipts == PRESETS[name]


@pytest.mark.parametrize(
    ("rule", "complaint"),
    [
        ({}, "rules[0].then: is missing"),
        ({"then": {"statsu": 500}}, "rules[0].then.statsu: is not a known key"),
        ({"then": {"status": "500"}}, "rules[0].then.status: a whole number from 200 to 599 is wanted"),
        ({"then": {"status": True}}, "rules[0].then.status: a whole number from 200 to 599 is wanted"),
        ({"then": {"accept": "yes"}}, "rules[0].then.accept: true or false is wanted"),
        ({"then": {"accept": False}}, "rules[0].then.accept: an answer to a message that is not accepted needs"),
        ({"then": {"respond": "drop", "status": 500}}, "rules[0].then.respond: drop gives no answer"),
        ({"then": {"respond": "garbage", "status": 500}}, "rules[0].then.respond: garbage goes with a 2xx"),
        ({"then": {"status": 201, "code": 21211}}, "rules[0].then.code: goes with a status from 400 on"),
        ({"then": {"code": 21211, "receipts": "lost"}}, "rules[0].then.receipts: goes with a message that is accepted"),
        ({"then": {"receipts": "lots"}}, "rules[0].then.receipts: a list, or one of normal, lost,"),
        ({"then": {"receipts": [{"status": ""}]}}, "rules[0].then.receipts[0].status: a string that is not empty"),
        ({"then": {"receipts": "early", "late_ms": 5}}, "rules[0].then.late_ms: a receipt before the answer cannot be late"),
        ({"then": {"latency_ms": [9, 1]}}, "rules[0].then.latency_ms: a number, or two in ascending order"),
        ({"match": {"to": "1201"}, "then": {}}, "rules[0].match.to: a number like +12015550123 or a prefix"),
        ({"match": {"on": "poll", "nth": 1}, "then": {}}, "rules[0].match.nth: counts what is sent to a number"),
        ({"match": {"on": "poll"}, "then": {"listed": False}}, "rules[0].then.listed: goes with sends only"),
        ({"match": {"probability": 2}, "then": {}}, "rules[0].match.probability: a number from 0 to 1 is wanted"),
        ({"times": 0, "then": {}}, "rules[0].times: a whole number from 1 to"),
    ],
)
def test_a_mistake_in_a_rule_is_named(rule: object, complaint: str) -> None:
    with pytest.raises(RulesRefused) as refused:
        parse_rules([rule])

    assert str(refused.value).startswith(complaint)


def answers(engine: Engine, to: str, count: int) -> list[int]:
    return [engine.send(Submission(to, SENDER, "hello"), now=NOON).answer.status for _ in range(count)]


@pytest.mark.parametrize(
    ("rule", "statuses"),
    [
        ({"match": {"to": ANNA}, "then": {"status": 503}}, [503, 503, 503, 503]),
        ({"match": {"to": "+1201*"}, "then": {"status": 503}}, [503, 503, 503, 503]),
        ({"match": {"to": BEN}, "then": {"status": 503}}, [201, 201, 201, 201]),
        ({"match": {"body_contains": "hell"}, "then": {"status": 503}}, [503, 503, 503, 503]),
        ({"match": {"nth": 2}, "then": {"status": 503}}, [201, 503, 201, 201]),
        ({"match": {"every": 2}, "then": {"status": 503}}, [201, 503, 201, 503]),
        ({"times": 1, "then": {"status": 503}}, [503, 201, 201, 201]),
        ({"match": {"probability": 0}, "then": {"status": 503}}, [201, 201, 201, 201]),
        ({"match": {"probability": 1}, "then": {"status": 503}}, [503, 503, 503, 503]),
    ],
)
def test_a_rule_applies_to_what_it_matches(rule: object, statuses: list[int]) -> None:
    engine = Engine(Account(), seed=1)
    engine.use_rules(parse_rules([rule]))

    assert answers(engine, ANNA, 4) == statuses


def test_the_first_rule_that_matches_wins() -> None:
    engine = Engine(Account(), seed=1)
    engine.use_rules(parse_rules([{"times": 1, "then": {"status": 500}}, {"then": {"status": 503}}]))

    assert answers(engine, ANNA, 3) == [500, 503, 503]
