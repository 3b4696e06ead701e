"""The fixtures' receipt calls of the carriers we have: who is believed, and what is read out of it."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from app.carriers.base import Call, RouteSettings
from app.carriers.registry import OVER_HTTP, open_carrier
from policy.states import AttemptState
from policy.words import ErrorClass, Reason
from tests.carriers.wire import kannel_route, twilio_route

Line = dict[str, Any]

PATH: Final = Path(__file__).parents[1] / "fixtures" / "receipts.jsonl"
ALL: Final[list[Line]] = [json.loads(line) for line in PATH.read_text(encoding="utf-8").splitlines()]
LINES: Final = {line["id"]: line for line in ALL if line["carrier"] in OVER_HTTP}
READABLE: Final = [name for name, line in LINES.items() if "verdict" not in line["expect"]]
QUARANTINED: Final = [name for name, line in LINES.items() if line["expect"].get("verdict") == "quarantine"]
REJECTED: Final = [name for name, line in LINES.items() if line["expect"].get("verdict") == "reject"]

STATES: Final = {"queued": "submitted"}  # the carrier's queue is past our handoff
CLASSES: Final = {"carrier-rate-limited": "throttled", "unknown": "unclassified"}


def route_of(line: Line) -> RouteSettings:
    url, secret = line["url"].partition("?")[0], line["auth"]["secret"]
    routes = {
        "twilio": twilio_route(receipt_url=url, auth_token=secret, shared_key_webhooks_sharedkey_0001=secret),
        "kannel": kannel_route(receipt_url=url, receipt_token=secret),
    }
    return routes[line["carrier"]]


def call_of(line: Line) -> Call:
    typed = {"Content-Type": line["content_type"]} if line["content_type"] else {}
    return Call(line["method"], line["url"].partition("?")[2].encode(), {**line["headers"], **typed}, line["body"].encode())


def state_of(line: Line) -> AttemptState:
    word = line["expect"]["state"]
    return AttemptState(STATES.get(word, word))


def class_of(line: Line) -> ErrorClass | None:
    word = line["expect"]["error_class"]
    return ErrorClass(CLASSES.get(word, word.replace("-", "_"))) if word else None


def time_of(line: Line) -> datetime | None:
    at = line["expect"]["source_time"]
    return datetime.fromisoformat(at) if at else None


def dedupe_key(name: str) -> str:
    return open_carrier(route_of(LINES[name])).read_receipt(call_of(LINES[name])).dedupe_key


@pytest.mark.parametrize("name", [*READABLE, *QUARANTINED])
def test_a_signed_call_is_authentic(name: str) -> None:
    assert open_carrier(route_of(LINES[name])).is_authentic(call_of(LINES[name]))


@pytest.mark.parametrize("name", REJECTED)
def test_a_call_with_a_wrong_signature_is_not(name: str) -> None:
    assert not open_carrier(route_of(LINES[name])).is_authentic(call_of(LINES[name]))


@pytest.mark.parametrize("name", READABLE)
def test_a_call_is_read_as_the_fixture_says(name: str) -> None:
    line = LINES[name]

    receipt = open_carrier(route_of(line)).read_receipt(call_of(line))

    (report,) = receipt.reports
    assert report.state is state_of(line)
    assert report.remote_id == line["expect"]["remote_id"]
    assert report.error_class is class_of(line)
    assert report.error_code == line["expect"].get("error_code")
    assert report.source_at == time_of(line)
    assert receipt.reference == line["expect"]["attempt_key"]


@pytest.mark.parametrize("name", QUARANTINED)
def test_a_call_without_an_id_cannot_be_used(name: str) -> None:
    with pytest.raises(KeyError):
        open_carrier(route_of(LINES[name])).read_receipt(call_of(LINES[name]))


@pytest.mark.parametrize(("first", "again"), [("tw-02", "tw-03"), ("kn-01", "kn-03")])
def test_a_repeated_call_has_the_key_of_the_first(first: str, again: str) -> None:
    assert dedupe_key(first) == dedupe_key(again)


def test_different_calls_have_different_keys() -> None:
    keys = [dedupe_key(name) for name in READABLE if name not in {"tw-03", "kn-03"}]

    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("tw-11", Reason.UNKNOWN_WORD), ("kn-09", Reason.CARRIER_UNSURE), ("kn-10", Reason.UNKNOWN_WORD)],
)
def test_an_unknown_outcome_says_why(name: str, reason: Reason) -> None:
    (report,) = open_carrier(route_of(LINES[name])).read_receipt(call_of(LINES[name])).reports

    assert report.reason is reason
