"""Recipients over HTTP: described, agreed, asked for; addresses go in and never come out whole."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from tests.making import ANNA, BEN
from tests.web.calling import Api, body_of, code_of, make_key, problem_of, production_log

ONE = "/v1/recipients/m-1"
CONSENTS = f"{ONE}/consents"
PREFERENCES = f"{ONE}/preferences"
GRANT = {"act": "grant", "kind": "express", "category": "marketing", "source": "form", "captured_at": "2026-01-15T12:00:00Z"}
WITHDRAWAL = {"act": "withdraw", "source": "form"}


def described(api: Api, **changes: object) -> dict[str, Any]:
    answer = api.put(ONE, {"sms": ANNA, "time_zone": "America/New_York", "locale": "en-US"} | changes)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    return body_of(answer)


def without_id(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name not in {"id", "recorded_at", "recorded_by"}}


def written(api: Api) -> int:
    tables = ("recipient", "consent", "preference", "contact", "person_key", "gate")
    with api.engine.connect() as connection:
        return sum(int(connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()) for table in tables)


def test_a_person_is_described_and_read_with_the_address_masked(api: Api) -> None:
    put = described(api)

    assert body_of(api.get(ONE)) == put
    assert put["addresses"][0] | {"since": ""} == {"channel": "sms", "address": "••••••••••23", "country": "US", "since": ""}
    assert (put["ref"], put["version"], put["time_zone"], put["locale"]) == ("m-1", 1, "America/New_York", "en-US")


def test_describing_alike_changes_nothing_and_what_is_left_out_is_gone(api: Api) -> None:
    assert described(api) == described(api)

    assert body_of(api.put(ONE, {"sms": ANNA}))["time_zone"] is None
    assert body_of(api.put(ONE, {}))["addresses"] == []
    assert body_of(api.get(PREFERENCES))["items"] == []
    assert body_of(api.get(ONE))["version"] == 3


def test_a_consent_is_kept_once_and_listed_with_its_evidence(api: Api) -> None:
    described(api)

    first, again = api.post(CONSENTS, GRANT | {"wording": "w-3"}), api.post(CONSENTS, GRANT | {"wording": "w-3"})

    assert (first.status_code, again.status_code) == (201, 200)
    assert body_of(again) == {"id": body_of(first)["id"], "duplicate": True}
    page = body_of(api.get(CONSENTS))
    assert page["next_cursor"] is None
    assert [without_id(item) for item in page["items"]] == [GRANT | {"channel": "sms", "expires_at": None, "wording": "w-3"}]


def test_consents_are_read_page_by_page(api: Api) -> None:
    described(api)
    sources = [f"form {n}" for n in range(3)]
    kept = [api.post(CONSENTS, GRANT | {"source": source}).status_code for source in sources]

    first = body_of(api.get(f"{CONSENTS}?limit=2"))
    rest = body_of(api.get(f"{CONSENTS}?limit=2&after={first['next_cursor']}"))

    assert kept == [201] * 3
    assert [item["source"] for item in first["items"] + rest["items"]] == sources[::-1]
    assert rest["next_cursor"] is None


def test_a_consent_may_name_its_number_and_then_needs_no_description(api: Api) -> None:
    assert api.post(CONSENTS, WITHDRAWAL | {"sms": BEN}).status_code == 201

    assert body_of(api.get(CONSENTS))["items"][0]["kind"] is None
    assert code_of(api.get(ONE)) == (404, "not_found")


def test_preferences_stand_by_category_and_repeating_them_changes_nothing(api: Api) -> None:
    described(api)
    asked = {"preferences": [{"wanted": True}, {"category": "marketing", "wanted": False}]}

    first, again = api.put(PREFERENCES, asked), api.put(PREFERENCES, asked)

    assert body_of(first) == body_of(again) == body_of(api.get(PREFERENCES))
    assert {item["category"]: item["wanted"] for item in body_of(first)["items"]} == {
        "otp": True,
        "transactional": True,
        "operational": True,
        "marketing": False,
    }


def test_a_refused_number_is_not_quoted(api: Api) -> None:
    assert "161 496" not in str(problem_of(api.put(ONE, {"sms": "0161 496 0000"})))


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"sms": "0161 496 0000"}, "invalid_number", "/sms"),
        ({"sms": "+1201555"}, "invalid_number", "/sms"),
        ({"sms": 1}, "invalid_number", "/sms"),
        ({"sms": "+12015550123\x00"}, "invalid_number", "/sms"),
        ({"time_zone": "Etc/Unknown"}, "invalid_field", "/time_zone"),
        ({"time_zone": []}, "invalid_field", "/time_zone"),
        ({"locale": "anna@example.com"}, "invalid_field", "/locale"),
        ({"ref": "m-2"}, "unknown_field", "/ref"),
        ({"+12015550123": 1}, "unknown_field", "/?"),
    ],
)
def test_a_bad_description_is_refused_with_its_place(api: Api, changes: dict[str, Any], code: str, pointer: str) -> None:
    problem = problem_of(api.put(ONE, {"sms": ANNA} | changes))

    assert [(error["code"], error["pointer"]) for error in problem["errors"]] == [(code, pointer)]
    assert written(api) == 0


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"act": "give"}, "invalid_field", "/act"),
        ({"kind": None}, "invalid_field", "/kind"),
        ({"kind": "By word of mouth"}, "invalid_field", "/kind"),
        ({"kind": "implied_ebr"}, "invalid_field", "/expires_at"),
        ({"category": "party"}, "invalid_field", "/category"),
        ({"channel": "fax"}, "invalid_field", "/channel"),
        ({"captured_at": "2026-01-15"}, "invalid_field", "/captured_at"),
        ({"captured_at": "2226-01-15T12:00:00Z"}, "invalid_field", "/captured_at"),
        ({"expires_at": "2026-01-15T12:00:00Z"}, "invalid_field", "/expires_at"),
        ({"captured_at": None, "expires_at": "2020-01-15T12:00:00Z"}, "invalid_field", "/expires_at"),
        ({"act": "withdraw", "expires_at": "2036-01-15T12:00:00Z"}, "invalid_field", "/expires_at"),
        ({"source": None}, "invalid_field", "/source"),
        ({"source": "told by anna@example.com"}, "personal_value", "/source"),
        ({"wording": "w\x00"}, "invalid_field", "/wording"),
        ({"sms": "12"}, "invalid_number", "/sms"),
        ({"note": 1}, "unknown_field", "/note"),
    ],
)
def test_a_bad_consent_is_refused_with_its_place(api: Api, changes: dict[str, Any], code: str, pointer: str) -> None:
    described(api)
    before = written(api)

    problem = problem_of(api.post(CONSENTS, GRANT | changes))

    assert [(error["code"], error["pointer"]) for error in problem["errors"]] == [(code, pointer)]
    assert written(api) == before


@pytest.mark.parametrize(
    ("asked", "code", "pointer"),
    [
        ([], "invalid_field", "/preferences"),
        ([{"wanted": True}] * 51, "invalid_field", "/preferences"),
        ([{"wanted": True}, {"wanted": False}], "invalid_field", "/preferences"),
        ([{"wanted": True}, 1], "invalid_field", "/preferences/1"),
        ([{"wanted": "yes"}], "invalid_field", "/preferences/0/wanted"),
        ([{"category": "marketing"}], "invalid_field", "/preferences/0/wanted"),
        ([{"wanted": True, "at": "2226-01-15T12:00:00Z"}], "invalid_field", "/preferences/0/at"),
        ([{"wanted": True, "sms": ANNA}], "unknown_field", "/preferences/0/sms"),
    ],
)
def test_bad_preferences_are_refused_with_their_place(api: Api, asked: list[Any], code: str, pointer: str) -> None:
    described(api)
    before = written(api)

    problem = problem_of(api.put(PREFERENCES, {"preferences": asked}))

    assert [(error["code"], error["pointer"]) for error in problem["errors"]] == [(code, pointer)]
    assert written(api) == before


@pytest.mark.parametrize("ref", ["+12015550123", "anna@example.com", "x" * 201, "m%00"])
def test_a_ref_that_could_not_be_kept_is_refused(api: Api, ref: str) -> None:
    answer = api.put(f"/v1/recipients/{ref}", {})

    assert answer.status_code == 422
    assert problem_of(answer)["errors"][0]["pointer"] == "{ref}"


def test_what_is_told_of_a_person_without_an_address_is_refused(api: Api) -> None:
    api.put(ONE, {"locale": "en"})

    assert code_of(api.post(CONSENTS, GRANT)) == (422, "no_address")
    assert code_of(api.put(PREFERENCES, {"preferences": [{"wanted": False}]})) == (422, "no_address")


def test_an_erased_person_is_not_there_any_more(api: Api) -> None:
    described(api)
    api.post(CONSENTS, GRANT)
    with api.engine.begin() as connection:
        connection.execute(text("UPDATE person_key SET wrapped_key = NULL, destroyed_at = now()"))

    reads = [code_of(api.get(path)) for path in (ONE, CONSENTS, PREFERENCES)]

    assert reads == [(404, "not_found")] * 3
    assert code_of(api.put(ONE, {"sms": BEN})) == (422, "recipient_erased")
    assert code_of(api.post(CONSENTS, GRANT | {"sms": BEN})) == (422, "recipient_erased")


def test_another_tenant_sees_nothing(api: Api, other: Api) -> None:
    described(api)
    api.post(CONSENTS, GRANT)

    assert [code_of(other.get(path)) for path in (ONE, CONSENTS, PREFERENCES)] == [(404, "not_found")] * 3


def test_reading_and_writing_take_their_scopes(api: Api) -> None:
    reader, writer = make_key(api, "events:read"), make_key(api, "events:write")

    assert code_of(reader.put(ONE, {})) == (403, "scope_missing")
    assert code_of(reader.post(CONSENTS, GRANT)) == (403, "scope_missing")
    assert writer.put(ONE, {}).status_code == 200
    assert code_of(writer.get(ONE)) == (403, "scope_missing")


def test_no_log_line_names_a_person(api: Api) -> None:
    with production_log() as out:
        described(api)
        api.post(CONSENTS, GRANT)
        api.put(ONE, {"sms": "+1201555"})

    assert "/v1/recipients/<ref>" in out.getvalue()
    assert "m-1" not in out.getvalue()
    assert "2015550123" not in out.getvalue()
