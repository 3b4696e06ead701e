"""Receipts over HTTP: carriers need no key, and the status tells them whether to call again."""

from __future__ import annotations

from base64 import b64encode
from hmac import digest
from urllib.parse import urlencode

import pytest
from flask.testing import FlaskClient
from sqlalchemy import Engine
from werkzeug.test import TestResponse

from app.flows.receipts import Taken
from app.ground.db import CommitUnknown, DatabaseAway
from policy.states import AttemptState
from tests.making import ACCOUNT, Standing, attempt_of, clock, committing, count_of, make_attempt
from tests.web.calling import Api, code_of, make_api

NO_ROUTE = "/v1/receipts/01a22d33-fc89-7143-b906-38ee21a2bc16"


def handed_off(api: Api) -> Standing:
    with committing(api.engine) as session:
        return make_attempt(session, api.house, AttemptState.SUBMITTED, remote_id="SM1", now=clock(session))


def twilio_posts(api: Api, *, signature: str | None = None) -> TestResponse:
    form = {"MessageSid": "SM1", "MessageStatus": "delivered", "To": "+12015550123"}
    signed = api.house.receipt_url + "".join(name + form[name] for name in sorted(form))
    ours = b64encode(digest(ACCOUNT.auth_token.encode(), signed.encode(), "sha1")).decode()
    return api.client.post(
        f"/v1/receipts/{api.house.route_id}", data=form, headers={"X-Twilio-Signature": ours if signature is None else signature}
    )


def state_of(api: Api, standing: Standing) -> str:
    with committing(api.engine) as session:
        return str(attempt_of(session, standing).state)


def test_a_signed_form_is_kept_and_observed(api: Api) -> None:
    standing = handed_off(api)

    answer = twilio_posts(api)

    assert (answer.status_code, answer.mimetype, answer.data) == (200, "text/plain", b"kept\n")
    assert state_of(api, standing) == "delivered"


def test_a_repeated_call_is_answered_well_again(api: Api) -> None:
    handed_off(api)

    assert [twilio_posts(api).status_code for _ in range(2)] == [200, 200]


def test_a_forged_call_is_refused_and_kept_apart(api: Api) -> None:
    standing = handed_off(api)

    answer = twilio_posts(api, signature="Zm9yZ2Vk")

    assert code_of(answer) == (403, "not_authentic")
    assert state_of(api, standing) == "submitted"
    with committing(api.engine) as session:
        assert (count_of(session, "receipt"), count_of(session, "refused_receipt")) == (0, 1)


def test_kannel_calls_by_get_and_its_raw_query_is_what_counts(client: FlaskClient, fresh_database: Engine) -> None:
    kannel = make_api(client, fresh_database, carrier="kannel")
    standing = handed_off(kannel)
    with committing(kannel.engine) as session:
        key = attempt_of(session, standing).attempt_key
    query = urlencode({"key": key, "tok": "t", "type": "1", "fid": "f-1", "ts": "1796148000"}) + "&reply=%E9%00"

    answer = client.get(f"/v1/receipts/{kannel.house.route_id}?{query}")

    assert answer.status_code == 200
    assert state_of(kannel, standing) == "delivered"


def test_a_route_that_is_not_there_is_not_found(api: Api) -> None:
    answers = [api.client.get(NO_ROUTE), api.client.post(NO_ROUTE), api.client.get("/v1/receipts/x")]

    assert [code_of(a) for a in answers] == [(404, "not_found")] * 3


def test_a_call_too_large_to_keep_is_refused(api: Api) -> None:
    answer = api.client.post(f"/v1/receipts/{api.house.route_id}", data=b"x" * 70_000)

    assert code_of(answer) == (413, "too_large")


@pytest.mark.parametrize("trouble", [DatabaseAway("away"), CommitUnknown("lost")])
def test_the_carrier_is_asked_to_repeat_what_could_not_be_kept(
    client: FlaskClient, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """Anything but 503 here loses the receipt for good."""

    def take(*_: object) -> Taken:
        raise trouble

    monkeypatch.setattr("web.edge.receipts.take_receipt", take)

    answer = client.get(NO_ROUTE)

    assert code_of(answer) == (503, "database_away")
    assert answer.headers["Retry-After"] == "2"
