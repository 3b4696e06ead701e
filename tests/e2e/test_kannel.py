"""Through a real SMS gateway: Daybook hands off to Kannel and is settled by Kannel's own receipts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.ground.config import database_url
from tests.carriers.test_kannel_peer import base_port, peer
from tests.carriers.test_kannel_peer import pytestmark as needs_peer
from tests.e2e.conftest import impatient_policy
from tests.e2e.house import House

pytestmark = [pytest.mark.processes, *needs_peer]


@pytest.fixture(scope="module")
def kannel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Give the sendsms URL of a running Kannel and its scripted SMSC's book."""
    folder, base = tmp_path_factory.mktemp("kannel"), base_port()
    peer("start", folder, str(base))
    yield f"http://127.0.0.1:{base + 4}/cgi-bin/sendsms", folder / "sim.jsonl"
    peer("stop", folder)


@pytest.fixture(scope="module")
def member(house: House, kannel: tuple[str, Path]) -> House:
    """Give the house with the key of a tenant whose route is that Kannel."""
    now: datetime = house.sql("SELECT clock_timestamp()")[0][0].astimezone(UTC)
    engine = create_engine(database_url(house.ready["database_url"]))
    with Session(engine, expire_on_commit=False) as session:
        tenant_id = add_tenant(session, name="gateway", now=now)
        key = add_key(session, tenant_id=tenant_id, name="test", scopes=("events:write", "events:read", "history:read"), now=now)
        store_policy(session, tenant_id=tenant_id, raw=impatient_policy(opens_at=now), now=now)
        template = NewTemplate("class-opening", "transactional", ["class"], {"en": "A seat opened in {{ class }}."}, "en")
        publish_template(session, tenant_id=tenant_id, template=template, now=now)
        route = NewRoute(
            name="kannel",
            carrier="kannel",
            sender="15005550006",
            settings={"base_url": kannel[0], "smsc": "smpp1", "max_messages": "6"},
            credentials={"username": "app", "password": "apppw", "receipt_token": "a-token-of-this-test"},
        )
        add_route(session, tenant_id=tenant_id, route=route, public_url=house.ready["base_url"], now=now)
        session.commit()
    engine.dispose()
    return house.as_tenant(key)


def submits(book: Path, number: str) -> list[dict[str, object]]:
    """Read what the SMSC was given for a number."""
    lines = [json.loads(line) for line in book.read_text().splitlines()]
    return [line for line in lines if line.get("to") == number.lstrip("+")]


# The last two digits say what the scripted SMSC does; see tests/peers/kannel/README.md.


def test_a_text_that_the_gateway_delivers_is_settled_by_its_receipts(member: House, kannel: tuple[str, Path]) -> None:
    answer = member.post(member.request(sms="+12015550100"))

    items = member.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items] == ["queued", "handed_off", "delivered"]
    assert len(submits(kannel[1], "+12015550100")) == 1


def test_a_text_that_the_gateway_cannot_deliver_fails_with_its_class(member: House, kannel: tuple[str, Path]) -> None:
    answer = member.post(member.request(sms="+12015550101"))

    items = member.await_state(answer["event_id"], "failed")

    assert items[-1]["reason"] == "permanent_recipient"
    assert len(submits(kannel[1], "+12015550101")) == 1


def test_a_late_receipt_still_settles(member: House) -> None:
    answer = member.post(member.request(sms="+12015550110"))
    member.await_state(answer["event_id"], "handed_off")

    items = member.await_state(answer["event_id"], "delivered")

    assert [item["state"] for item in items] == ["queued", "handed_off", "delivered"]


def test_a_text_with_letters_outside_the_gsm_alphabet_arrives_as_written(member: House, kannel: tuple[str, Path]) -> None:
    answer = member.post(member.request(sms="+12025550100", data={"class": "Йога 18:00"}))

    member.await_state(answer["event_id"], "delivered")

    assert [line["text"] for line in submits(kannel[1], "+12025550100")] == ["A seat opened in Йога 18:00."]
