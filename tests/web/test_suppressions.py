"""Suppressions over HTTP: ordered, listed with how they came about, lifted by name; a number goes in and never comes out."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from app.ground.db import rows
from app.ground.ids import new_id
from app.people.suppressions import NewSuppression, Whom, record_suppressions
from policy.states import AttemptState
from policy.words import ErrorClass
from tests.making import ANNA, BEN, clock, committing, hear, make_attempt
from tests.web.calling import Api, body_of, code_of, make_key, problem_of, production_log
from tests.web.writing import inbox, write

ONE = "/v1/recipients/m-1"
OF_ONE = f"{ONE}/suppressions"
NUMBERS = "/v1/suppressions"
SEARCH = f"{NUMBERS}/search"
LIFT = f"{NUMBERS}/lift"
ORDER = {"reason": "asked by telephone"}


def ordered(api: Api, path: str = OF_ONE, **changes: object) -> list[str]:
    answer = api.post(path, ORDER | changes)
    assert answer.status_code == 201, answer.get_data(as_text=True)
    ids: list[str] = body_of(answer)["suppressions"]
    return ids


def acts(api: Api, path: str = OF_ONE) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body_of(api.get(path))["items"]
    return items


def searched(api: Api, sms: str = ANNA, **changes: object) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = body_of(api.post(SEARCH, {"sms": sms} | changes))["items"]
    return items


def actions(api: Api) -> list[tuple[str, str]]:
    with committing(api.engine) as session:
        return [(row.verb, row.reason) for row in rows(session, "SELECT verb, reason FROM operator_action ORDER BY at")]


def test_an_order_holds_at_once_and_tells_how_it_came_about(api: Api) -> None:
    api.put(ONE, {"sms": ANNA})

    (kept,) = ordered(api, category="transactional", source="complaint")

    intent = api.accepted()["intents"][0]
    (act,) = acts(api)
    assert (intent["state"], intent["reason"]) == ("suppressed", "opted_out")
    assert (act["id"], act["act"], act["source"], act["category"]) == (kept, "suppress", "complaint", "transactional")
    assert (act["address"], act["reason"], act["stands"]) == ("••••••••••23", "asked by telephone", True)
    assert act["cause"]["kind"] == "action"
    assert act["recorded_by"].startswith("key:")
    assert act["at"] == act["recorded_at"]
    assert actions(api) == [("suppress", "asked by telephone")]


def test_what_a_carrier_said_is_told_with_its_code(api: Api) -> None:
    with committing(api.engine) as session:
        now = clock(session)
        attempt = make_attempt(session, api.house, AttemptState.SUBMITTED, remote_id="SM1", now=now)
        hear(session, attempt, AttemptState.FAILED, error_class=ErrorClass.OPTED_OUT, error_code="21610", now=now)

    (act,) = acts(api)

    assert (act["source"], act["recorded_by"], act["reason"]) == ("carrier", "daybook", None)
    assert (act["cause"]["kind"], act["cause"]["error_code"]) == ("report", "21610")
    assert act["cause"]["attempt_id"] == str(attempt.attempt_id)


def test_repeating_an_order_changes_nothing_and_another_source_stands_beside_it(api: Api) -> None:
    api.put(ONE, {"sms": ANNA})
    first = ordered(api)

    again = api.post(OF_ONE, ORDER)
    other = ordered(api, source="legal")

    assert (again.status_code, body_of(again)) == (200, {"suppressions": first, "duplicate": True})
    assert [act["id"] for act in acts(api)] == [*other, *first]
    assert len(actions(api)) == len((first, other))


def test_a_lift_takes_back_what_it_names_and_nothing_else(api: Api) -> None:
    api.put(ONE, {"sms": ANNA})
    (first,), (second,) = ordered(api), ordered(api, source="legal")

    lifted, again = (api.post(LIFT, {"suppressions": [first], "reason": "came back"}) for _ in range(2))

    assert body_of(lifted) == {"lifted": [first], "lifted_before": []}
    assert body_of(again) == {"lifted": [], "lifted_before": [first]}
    lift, *others = acts(api)
    assert (lift["act"], lift["lifts"], lift["reason"]) == ("lift", [first], "came back")
    assert [(act["id"], act["stands"], act["lifted_by"]) for act in others] == [(second, True, None), (first, False, lift["id"])]
    assert [act["id"] for act in acts(api, f"{OF_ONE}?standing=true")] == [second]
    assert actions(api)[-1] == ("lift_suppression", "came back")


def test_a_person_is_suppressed_at_each_of_their_numbers_or_at_the_one_that_is_named(api: Api) -> None:
    api.put(ONE, {"sms": ANNA})
    api.put(ONE, {"sms": BEN})

    one, both = ordered(api, sms=BEN), ordered(api)

    assert (len(one), len(both)) == (1, 2)
    assert set(one) <= set(both)
    assert {act["address"] for act in acts(api)} == {"••••••••••23", "••••••••••24"}


def test_a_number_of_nobody_is_suppressed_searched_and_lifted_without_being_told_again(api: Api) -> None:
    kept = ordered(api, NUMBERS, sms=ANNA, source="wrong_number", everything=True)

    (act,) = searched(api)
    lifted = body_of(api.post(LIFT, {"suppressions": kept, "reason": "was a mistake"}))

    assert ([act["id"]], act["address"], act["everything"]) == (kept, None, True)
    assert lifted["lifted"] == kept
    assert searched(api, standing=True) == []
    assert ANNA.removeprefix("+1") not in str(searched(api))
    assert code_of(api.get(OF_ONE)) == (404, "not_found")


def test_acts_are_read_page_by_page(api: Api) -> None:
    kept = [ordered(api, NUMBERS, sms=ANNA, source=source)[0] for source in ("api", "legal", "complaint")]

    first = body_of(api.post(SEARCH, {"sms": ANNA, "limit": 2}))
    rest = body_of(api.post(SEARCH, {"sms": ANNA, "limit": 2, "after": first["next_cursor"]}))

    assert [act["id"] for act in first["items"] + rest["items"]] == kept[::-1]
    assert rest["next_cursor"] is None


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"reason": None}, "invalid_field", "/reason"),
        ({"reason": "told by anna@example.com"}, "personal_value", "/reason"),
        ({"category": "party"}, "invalid_field", "/category"),
        ({"channel": "fax"}, "invalid_field", "/channel"),
        ({"source": "rumour"}, "invalid_field", "/source"),
        ({"everything": 1}, "invalid_field", "/everything"),
        ({"everything": True, "category": "marketing"}, "invalid_field", "/everything"),
        ({"sms": "+1201555"}, "invalid_number", "/sms"),
        ({"at": "2026-01-15T12:00:00Z"}, "unknown_field", "/at"),
    ],
)
def test_a_bad_order_is_refused_with_its_place(api: Api, changes: dict[str, Any], code: str, pointer: str) -> None:
    api.put(ONE, {"sms": ANNA})

    problem = problem_of(api.post(OF_ONE, ORDER | changes))

    assert [(error["code"], error["pointer"]) for error in problem["errors"]] == [(code, pointer)]
    assert acts(api) == []


def test_nobody_is_suppressed_by_mistake(api: Api) -> None:
    api.put(ONE, {})

    assert code_of(api.post(OF_ONE, ORDER)) == (422, "no_address")
    assert problem_of(api.post(NUMBERS, ORDER))["errors"][0]["pointer"] == "/sms"


def test_a_lift_of_what_is_not_there_lifts_nothing(api: Api, other: Api) -> None:
    """Nor of another tenant's, also beside one of ours: all or nothing."""
    ours = ordered(api, NUMBERS, sms=ANNA)
    theirs = ordered(other, NUMBERS, sms=ANNA)

    told = [code_of(api.post(LIFT, {"suppressions": [*ours, each], "reason": "x"})) for each in (*theirs, str(new_id()))]

    assert told == [(422, "unknown_suppression")] * 2
    assert [act["stands"] for act in searched(api) + searched(other)] == [True, True]
    assert code_of(other.get(OF_ONE)) == (404, "not_found")


def test_lifting_is_for_operators(api: Api) -> None:
    writer, reader = make_key(api, "events:write"), make_key(api, "events:read")
    kept = ordered(writer, NUMBERS, sms=ANNA)

    assert code_of(writer.post(LIFT, {"suppressions": kept, "reason": "x"})) == (403, "scope_missing")
    assert code_of(reader.post(NUMBERS, ORDER | {"sms": ANNA})) == (403, "scope_missing")
    assert code_of(writer.post(SEARCH, {"sms": ANNA})) == (403, "scope_missing")
    assert len(searched(reader)) == 1


def test_a_stop_is_told_with_its_text_and_lifted_apart_from_an_order(api: Api) -> None:
    """START, too, lifts what was texted and leaves the order."""
    api.put(ONE, {"sms": ANNA})
    write(api, "stop")
    (order,) = ordered(api)
    (stop,) = [act for act in acts(api) if act["source"] == "keyword"]

    write(api, "start")

    told, started = inbox(api)["items"]
    lift, *_ = acts(api)
    assert (stop["cause"]["kind"], stop["cause"]["id"], stop["recorded_by"]) == ("inbound", told["id"], "daybook")
    assert (lift["lifts"], lift["cause"]["id"]) == ([stop["id"]], started["id"])
    assert [act["id"] for act in acts(api, f"{OF_ONE}?standing=true")] == [order]


def test_start_lifts_what_a_list_told_as_well(api: Api) -> None:
    """They wrote to us that they want our messages: what they wrote to somebody else before is answered by that."""
    api.put(ONE, {"sms": ANNA})
    with committing(api.engine) as session:
        now = clock(session)
        old = NewSuppression(
            Whom("sms", "m-1"),
            None,
            everything=False,
            act="suppress",
            source="keyword",
            at=now - timedelta(days=900),
            reason=None,
        )
        record_suppressions(session, [old], tenant_id=api.house.tenant_id, cause_id=new_id(), now=now)
    write(api, "stop")
    stood = [act["source"] for act in acts(api)]

    write(api, "start")

    assert stood == ["keyword", "keyword"]
    assert acts(api, f"{OF_ONE}?standing=true") == []


def test_no_log_line_and_no_refusal_names_a_number(api: Api) -> None:
    with production_log() as out:
        refused = api.post(NUMBERS, ORDER | {"sms": "+1 201 555 0123 4"})
        ordered(api, NUMBERS, sms=ANNA)
        searched(api)

    assert "/v1/suppressions/search" in out.getvalue()
    assert "5550123" not in out.getvalue() + refused.get_data(as_text=True)
