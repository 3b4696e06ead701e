"""The inlet: an event inserted inside somebody else's transaction is accepted when that commits, or keeps its error."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from app.flows.inlet import NOBODY, take_inlet
from app.ground.config import settings
from app.ground.db import rows
from app.people.vault import open_vault_key
from tests.making import (
    ANNA,
    House,
    ask,
    beside,
    clock,
    committing,
    count_of,
    make_event,
    make_house,
    together,
)


def house_of(engine: Engine) -> House:
    with committing(engine) as session:
        return make_house(session, now=clock(session))


def connect() -> psycopg.Connection[Any]:
    """Connect as a program would that knows nothing of Daybook."""
    return psycopg.connect(settings().database_url.replace("+psycopg", ""))


def insert(connection: psycopg.Connection[Any], tenant: str, request: object) -> None:
    connection.execute("INSERT INTO inlet (tenant, request) VALUES (%s, %s)", (tenant, Jsonb(request)))


def inserted(tenant: str, *requests: object) -> None:
    with connect() as connection:
        for request in requests:
            insert(connection, tenant, request)


def inlet_of(session: Session) -> list[Any]:
    return rows(session, "SELECT * FROM inlet ORDER BY id")


def problems_of(row: Any) -> list[tuple[str, str]]:
    return [(problem["code"], problem["pointer"]) for problem in row.error["problems"]]


def test_a_committed_row_is_accepted_and_emptied(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, ask())

    assert take_inlet() == 1

    with Session(fresh_database) as session:
        (row,) = inlet_of(session)
        (event,) = rows(session, "SELECT id, source, key FROM event")
        assert (row.status, row.event_id, row.request, row.sealed_request) == ("accepted", event.id, None, None)
        assert (event.source, event.key, count_of(session, "outbox")) == ("inlet", "class.opening/c-1/m-1", 1)


def test_a_row_of_a_transaction_that_is_rolled_back_never_was(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    connection = connect()
    insert(connection, house.tenant, ask())
    before = take_inlet()

    connection.rollback()
    connection.close()

    assert (before, take_inlet()) == (0, 0)
    with Session(fresh_database) as session:
        assert (count_of(session, "event"), count_of(session, "inlet")) == (0, 0)


def test_an_open_transaction_does_not_hold_up_what_was_committed_after_it(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    with connect() as slow:
        insert(slow, house.tenant, ask())
        inserted(house.tenant, ask(subject="c-2"))

        assert take_inlet() == 1

    assert take_inlet() == 1
    with Session(fresh_database) as session:
        assert [row.status for row in inlet_of(session)] == ["accepted", "accepted"]


def test_a_refused_row_keeps_its_error_and_is_emptied_into_the_vault(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, ask(template="gone"), ask(sms="nonsense"))

    assert take_inlet() == 2

    with Session(fresh_database) as session:
        first, second = inlet_of(session)
        assert (first.status, first.request, second.request, count_of(session, "event")) == ("refused", None, None, 0)
        assert problems_of(first) == [("unknown_template", "/template")]
        assert problems_of(second) == [("invalid_number", "/recipient/sms")]
        assert opened(session, first)["recipient"]["sms"] == ANNA
        assert ANNA not in str(first.error)


def opened(session: Session, row: Any) -> Any:
    """Open what was asked, as the text it came as."""
    (key,) = rows(session, "SELECT id, wrapped_key, tenant_id FROM person_key WHERE id = %(id)s", id=row.person_key_id)
    return json.loads(open_vault_key(key.id, key.wrapped_key).open(row.sealed_request))


@pytest.mark.parametrize("request_", [[], "text", 7, {}, None, {"recipient": []}])
def test_what_is_no_request_is_refused(fresh_database: Engine, request_: object) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, request_)

    assert take_inlet() == 1

    with Session(fresh_database) as session:
        assert [row.status for row in inlet_of(session)] == ["refused"]


def test_a_tenant_that_is_not_there_is_refused_under_nobodys_key(fresh_database: Engine) -> None:
    inserted("gone", ask())

    assert take_inlet() == 1

    with Session(fresh_database) as session:
        (row,) = inlet_of(session)
        assert problems_of(row) == [("unknown_tenant", "#tenant")]
        assert rows(session, "SELECT tenant_id FROM person_key")[0].tenant_id == NOBODY


def test_a_repeated_row_names_the_event_that_it_repeats(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    with committing(fresh_database) as session:
        event = make_event(session, house, now=clock(session))
    inserted(house.tenant, ask(), ask())

    take_inlet()

    with Session(fresh_database) as session:
        assert [row.event_id for row in inlet_of(session)] == [event.event_id] * 2
        assert count_of(session, "event") == 1


def test_rows_of_many_tenants_are_each_accepted_for_their_own(fresh_database: Engine) -> None:
    one, other = house_of(fresh_database), house_of(fresh_database)
    inserted(one.tenant, ask())
    inserted(other.tenant, ask())

    assert take_inlet() == 2

    with Session(fresh_database) as session:
        assert {row.tenant_id for row in rows(session, "SELECT tenant_id FROM event")} == {one.tenant_id, other.tenant_id}


@pytest.mark.parametrize(
    "poison",
    [
        pytest.param('{"data": {"class": 1e400}}', id="a number that no float holds"),
        pytest.param('{"data": {"class": 123456789012345678901234567890}}', id="a number that no integer holds"),
        pytest.param('{"data": ' + '{"a":' * 2000 + "1" + "}" * 2000 + "}", id="deeper than a reader goes"),
    ],
)
def test_a_poison_row_is_refused_alone(fresh_database: Engine, poison: str) -> None:
    """A jsonb column holds more than a JSON reader does: one such row must not hold the inlet up for good."""
    house = house_of(fresh_database)
    with connect() as connection:
        connection.execute("INSERT INTO inlet (tenant, request) VALUES (%s, %s::text::jsonb)", (house.tenant, poison))
    inserted(house.tenant, ask())

    take_inlet()

    with Session(fresh_database) as session:
        assert [row.status for row in rows(session, "SELECT status FROM inlet ORDER BY id")] == ["refused", "accepted"]


def test_an_emptied_row_says_so_to_the_database(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, ask())
    take_inlet()

    with connect() as connection, pytest.raises(psycopg.errors.CheckViolation):
        connection.execute("UPDATE inlet SET request = '{}'")


def test_two_workers_take_each_row_once(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, *(ask(subject=f"c-{n}", ref=f"m-{n}") for n in range(50)))

    done = together(take_inlet, take_inlet, take_inlet)

    with Session(fresh_database) as session:
        assert (sum(done), count_of(session, "event"), count_of(session, "inlet", status="accepted")) == (50, 50, 50)


def test_a_row_that_somebody_holds_is_passed_over(fresh_database: Engine) -> None:
    house = house_of(fresh_database)
    inserted(house.tenant, ask(), ask(subject="c-2"))

    with connect() as holder:
        holder.execute("SELECT 1 FROM inlet ORDER BY id LIMIT 1 FOR UPDATE")
        with beside(take_inlet) as (taking,):
            assert taking.result(5) == 1
