"""What people write, over HTTP: every fixture, once each, kept before it is acted on, and readable by the tenant."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

import pytest
from flask import Flask
from flask.testing import FlaskClient
from psycopg import errors
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.carriers.base import Call
from app.carriers.registry import open_carrier
from app.flows import inbound as flow
from app.flows.reconcile import inbound as sweep
from app.ground.db import rows
from app.ledger.inbound import Acted, act_on, keep_inbound
from app.ledger.routes import read_routes
from app.people.contacts import address_hash
from app.people.suppress import suppress
from app.people.vault import VaultDamaged
from simulator.dialect import sign
from tests.making import ACCOUNT, ANNA, BEN, House, clock, committing, count_of, make_event, make_route, together
from tests.web.calling import Api, code_of, make_api, make_key, served
from tests.web.writing import OURS, confirmations, inbox, publish_confirmation, signed, standing, text_form, write, write_over

FIXTURES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in (Path(__file__).parent.parent / "fixtures" / "optout_keywords.jsonl").read_text().splitlines()
]
# We ask nobody whether they want to opt in: a YES is never awaited, and is for a person to read.
NOT_AWAITED: Final = {"kw-39": ("none", None, None, True)}


def read_as(fixture: dict[str, Any]) -> tuple[Any, ...]:
    said = fixture["expect"], fixture["tier"], fixture["scope"], fixture["review"]
    return NOT_AWAITED.get(fixture["id"], said)


@pytest.fixture
def ours(client: FlaskClient, fresh_database: Engine) -> Api:
    """Give a tenant who confirms opt-outs, and has texted Anna."""
    api = make_api(client, fresh_database, settings=OURS)
    publish_confirmation(api)
    api.accepted()
    return api


def test_every_text_of_the_fixtures_is_read_as_they_say(api: Api) -> None:
    numbers = [f"+1201555{n:04}" for n in range(100, 100 + len(FIXTURES))]

    answers = [write(api, each["text"], sender=number) for each, number in zip(FIXTURES, numbers, strict=True)]

    assert {(a.status_code, a.mimetype, a.data) for a in answers} == {(200, "text/xml", b"<Response/>")}
    with committing(api.engine) as session:
        kept = rows(session, "SELECT word, tier, scope, review, status, address_hash FROM inbound ORDER BY id")
        stopped = {bytes(row.address_hash) for row in rows(session, "SELECT address_hash FROM suppression")}
    assert [(k.word, k.tier, k.scope, k.review) for k in kept] == [read_as(each) for each in FIXTURES]
    assert {k.status for k in kept} == {"acted"}
    assert stopped == {bytes(k.address_hash) for k in kept if k.word == "opt_out"}


def test_a_stop_is_kept_with_the_text_that_it_came_from(ours: Api) -> None:
    write(ours, "STOP")

    with committing(ours.engine) as session:
        row = rows(session, "SELECT s.*, n.word FROM suppression s JOIN inbound n ON n.id = s.cause_id")[0]
    assert (row.source, row.everything, row.category, row.word) == ("keyword", False, None, "opt_out")


def test_stopall_and_a_wrong_number_reach_everything(ours: Api) -> None:
    write(ours, "STOPALL")
    write(ours, "wrong number", sender=BEN)

    assert standing(ours) == [("keyword", True), ("wrong_number", True)]


def test_start_brings_back_what_a_text_or_the_carrier_took_and_nothing_else(ours: Api) -> None:
    anna = address_hash("sms", ANNA).digest
    with committing(ours.engine) as session:
        for source in ("carrier", "complaint", "legal", "operator"):
            suppress(
                session,
                tenant_id=ours.house.tenant_id,
                channel="sms",
                address_hash=anna,
                source=source,
                cause_id=None,
                now=clock(session),
            )
    write(ours, "STOP")
    write(ours, "wrong number")

    write(ours, "YES")
    yes = standing(ours)
    write(ours, "START")

    assert len(yes) == 6
    assert {source for source, _ in standing(ours)} == {"complaint", "legal", "operator", "wrong_number"}


def test_the_carrier_s_word_for_an_opt_out_counts(ours: Api) -> None:
    """By Advanced Opt-Out a tenant chooses words that we cannot know; Twilio blocks whoever writes them."""
    write(ours, "BYE BYE", OptOutType="STOP")
    write(ours, "HELLO", sender=BEN, OptOutType="START")

    assert standing(ours) == [("keyword", False)]


def test_a_repeated_call_is_one_text(ours: Api) -> None:
    answers = [write(ours, "STOP", sid="SM1").status_code for _ in range(3)]

    assert answers == [200] * 3
    with committing(ours.engine) as session:
        assert rows(session, "SELECT repeat_count FROM inbound")[0].repeat_count == 2
        assert (count_of(session, "inbound"), count_of(session, "suppression")) == (1, 1)


def test_a_text_is_acted_on_once_whoever_comes_to_it(ours: Api) -> None:
    """A sweep that found it waiting must not stop somebody anew who has written START since."""
    write(ours, "STOP")
    write(ours, "START")
    with committing(ours.engine) as session:
        (route,) = read_routes(session, [ours.house.route_id]).values()
        first = rows(session, "SELECT id FROM inbound ORDER BY id LIMIT 1")[0].id

    assert flow.act(first, route) is None
    assert standing(ours) == []


def test_a_forged_call_is_kept_apart_and_stops_nobody(ours: Api) -> None:
    for_a_receipt = sign(ACCOUNT.auth_token, ours.house.receipt_url, text_form("STOP", sid="SM1"))

    answers = [write(ours, "STOP", sid="SM1", signature=each) for each in ("Zm9yZ2Vk", for_a_receipt)]

    assert [code_of(a) for a in answers] == [(403, "not_authentic")] * 2
    with committing(ours.engine) as session:
        assert [row.cause for row in rows(session, "SELECT cause FROM refused_receipt")] == ["inbound_not_authentic"] * 2
        assert (count_of(session, "inbound"), count_of(session, "suppression")) == (0, 0)


def test_a_call_without_a_number_is_kept_for_a_person(ours: Api) -> None:
    form = {"Body": "STOP", "MessageSid": "SM1"}
    headers = {"X-Twilio-Signature": signed(ours.house, form)}

    unreadable = ours.client.post(f"/v1/inbound/{ours.house.route_id}", data=form, headers=headers)
    nameless = write(ours, "STOP", sender="Shop")

    assert (unreadable.status_code, nameless.status_code) == (200, 200)
    read = [(i["from"], i["text"], i["word"], i["review"]) for i in inbox(ours)["items"]]
    assert read == [(None, None, "none", True), ("Shop", "STOP", "opt_out", True)]
    with committing(ours.engine) as session:
        assert count_of(session, "inbound", status="quarantined") == 2


def test_kannel_hands_a_text_over_in_the_charset_that_it_came_in(client: FlaskClient, fresh_database: Engine) -> None:
    kannel = make_api(client, fresh_database, carrier="kannel")
    kannel.accepted()
    common = {"tok": "t", "from": "12015550123", "to": "100", "at": "1796148000"}
    utf_16 = urlencode(common | {"id": "k-1", "charset": "UTF-16BE"}) + "&text=%04%21%04%22%04%1E%04%1F"

    answers = [
        client.get(f"/v1/inbound/{kannel.house.route_id}?{query}")
        for query in (utf_16, utf_16, urlencode(common | {"id": "k-2", "charset": "GSM", "text": "no más é"}))
    ]

    assert [(a.status_code, a.mimetype, a.data) for a in answers] == [(200, "text/plain", b"")] * 3
    read = [(i["text"], i["word"], i["recipients"]) for i in inbox(kannel)["items"]]
    assert read == [("СТОП", "opt_out", ["m-1"]), ("no más é", "none", ["m-1"])]
    assert code_of(client.get(f"/v1/inbound/{kannel.house.route_id}?{utf_16.replace('tok=t', 'tok=x')}")) == (
        403,
        "not_authentic",
    )


def test_a_text_that_could_not_be_acted_on_at_once_is_acted_on_by_the_sweep(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """A STOP that was kept is heeded, whatever goes away between the two transactions."""

    def refuse(*_: object, **__: object) -> None:
        raise errors.LockNotAvailable

    with monkeypatch.context() as broken:
        broken.setattr(flow, "act_on", refuse)
        assert write(ours, "STOP").status_code == 200
    assert standing(ours) == []

    monkeypatch.setattr(sweep, "LEFT_BEHIND_AFTER", timedelta())
    assert (sweep.act_on_waiting(), sweep.act_on_waiting()) == (1, 0)

    assert standing(ours) == [("keyword", False)]
    assert confirmations(ours) == ["accepted"]


def test_a_text_that_cannot_be_acted_on_does_not_stop_the_sweep(ours: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[UUID] = []

    def refuse(session: Session, inbound_id: UUID, **more: Any) -> Acted | None:
        asked.append(inbound_id)
        if inbound_id == asked[0]:
            raise VaultDamaged("planted")
        return act_on(session, inbound_id, **more)

    def refuse_all(*_: object, **__: object) -> None:
        raise errors.LockNotAvailable

    with monkeypatch.context() as broken:
        broken.setattr(flow, "act_on", refuse_all)
        write(ours, "HELP")
        write(ours, "STOP")
    monkeypatch.setattr(flow, "act_on", refuse)
    monkeypatch.setattr(sweep, "LEFT_BEHIND_AFTER", timedelta())

    assert sweep.act_on_waiting() == 2

    assert len(asked) == 2
    assert standing(ours) == [("keyword", False)]


def test_the_tenant_reads_what_people_wrote_page_by_page(ours: Api) -> None:
    for text in ("Is it at six?", "Please cancel my appointment", "HELP"):
        write(ours, text)
    write(ours, "Who is this?", sender=BEN)

    first = inbox(ours, "?limit=2")
    rest = inbox(ours, f"?after={first['next_cursor']}")
    nothing = inbox(ours, f"?after={rest['next_cursor']}")

    items = first["items"] + rest["items"]
    assert [(i["text"], i["word"], i["review"], i["recipients"], i["from"]) for i in items] == [
        ("Is it at six?", "none", False, ["m-1"], ANNA),
        ("Please cancel my appointment", "none", True, ["m-1"], ANNA),
        ("HELP", "help", False, ["m-1"], ANNA),
        ("Who is this?", "none", False, [], BEN),
    ]
    assert (first["has_more"], rest["has_more"], nothing["items"]) == (True, False, [])
    assert nothing["next_cursor"] == rest["next_cursor"]
    assert [i["text"] for i in inbox(ours, "?recipient=m-1")["items"]] == [i["text"] for i in items[:3]]


def test_a_text_that_commits_late_is_not_skipped(ours: Api) -> None:
    """Whoever reads while a text is being kept must still meet it, though later ones were read before."""
    write(ours, "first")
    seen = inbox(ours)
    with committing(ours.engine) as late:
        keep_as_kannel_does(late, ours.house, b"second")
        write(ours, "third")
        between = inbox(ours, f"?after={seen['next_cursor']}")
    after = inbox(ours, f"?after={between['next_cursor']}")

    assert [i["text"] for page in (seen, between, after) for i in page["items"]] == ["first", "third", "second"]


def keep_as_kannel_does(session: Session, house: House, text: bytes) -> None:
    """Keep a text in a transaction that is still open."""
    route_id = make_route(session, house.tenant_id, carrier="kannel", now=clock(session))
    (route,) = read_routes(session, [route_id]).values()
    call = Call("GET", b"tok=t&from=12015550123&id=k-1&text=" + text, {}, b"")
    keep_inbound(session, route, call, open_carrier(route.settings).read_inbound(call), now=clock(session))


def test_what_people_wrote_to_one_tenant_is_nobody_else_s(ours: Api, other: Api) -> None:
    write(ours, "hello")

    assert inbox(other)["items"] == []
    assert code_of(make_key(ours, "events:write").get("/v1/inbound")) == (403, "scope_missing")
    assert code_of(ours.client.get("/v1/inbound")) == (401, "unauthorized")
    assert code_of(ours.get("/v1/inbound?limit=101")) == (422, "invalid_field")
    assert code_of(ours.get("/v1/inbound?after=9.9")) == (400, "unknown_cursor")


def test_a_text_is_sealed_under_the_person_s_key_where_it_can_be_nobody_else_s(ours: Api) -> None:
    write(ours, "mine")
    with committing(ours.engine) as session:
        make_event(session, ours.house, ref="m-2", now=clock(session))
    write(ours, "ours")
    query = "SELECT k.kind FROM inbound n JOIN person_key k ON k.id = n.person_key_id ORDER BY n.id"

    with committing(ours.engine) as session:
        assert [row.kind for row in rows(session, query)] == ["person", "holding"]
    assert [i["recipients"] for i in inbox(ours)["items"]] == [["m-1"], ["m-1", "m-2"]]


def test_an_erased_person_s_texts_do_not_open(ours: Api) -> None:
    write(ours, "mine")
    with committing(ours.engine) as session:
        rows(session, "UPDATE person_key SET wrapped_key = NULL, destroyed_at = now() WHERE kind = 'person'")

    items = inbox(ours)["items"]

    assert [(i["text"], i["from"], i["recipients"]) for i in items] == [(None, None, ["m-1"])]


def test_ten_stops_at_once_are_one_opt_out_and_one_confirmation(web_app: Flask, ours: Api) -> None:
    with served(web_app) as url:
        answers = together(*[lambda: write_over(url, ours.house, "STOP")] * 10)

    assert answers == [200] * 10
    assert Counter(confirmations(ours)) == {"accepted": 1, "repeated": 9}
    assert standing(ours) == [("keyword", False)]
    with committing(ours.engine) as session:
        assert (count_of(session, "inbound"), count_of(session, "event", source="inbound")) == (10, 1)


def test_a_route_may_say_at_which_url_its_texts_are_signed(client: FlaskClient, fresh_database: Engine) -> None:
    elsewhere = "https://proxy.example.test/in"
    api = make_api(client, fresh_database, settings=OURS | {"inbound_url": elsewhere})
    form = text_form("STOP")
    house = replace(api.house, receipt_url=elsewhere)

    answer = client.post(f"/v1/inbound/{api.house.route_id}", data=form, headers={"X-Twilio-Signature": signed(house, form)})

    assert (answer.status_code, code_of(write(api, "STOP"))) == (200, (403, "not_authentic"))
