"""The fixtures themselves: what is rolled back, what is wiped."""

import pytest
import redis
from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.ground.config import settings
from app.ground.db import transact
from tests.conftest import World, wipe


def test_a_session_is_rolled_back_also_after_a_commit(session: Session, world: World) -> None:
    session.execute(text("CREATE TABLE mine (n int)"))
    session.commit()

    with world.engine.connect() as outside:
        assert outside.execute(text("SELECT to_regclass('mine')")).scalar() is None


def test_transact_reaches_the_database_of_the_run(fresh_database: Engine) -> None:
    found = transact(lambda tx: tx.session.execute(text("SELECT current_setting('data_directory')")).scalar())

    with fresh_database.connect() as connection:
        assert connection.execute(text("SHOW data_directory")).scalar() == found


def test_a_wipe_also_empties_tables_that_refuse_it_and_keeps_the_migrations_rows(world: World) -> None:
    with redis.Redis.from_url(settings().redis_url) as client:
        client.set("left", 1)
    with world.engine.begin() as connection, pytest.raises(DBAPIError, match="append-only"):
        connection.execute(text("TRUNCATE event CASCADE"))

    wipe(world)

    with world.engine.connect() as connection:
        counts = {table: connection.execute(select(func.count()).select_from(table)).scalar() for table in world.first_rows}
    assert counts == {table: len(rows) for table, rows in world.first_rows.items()}
    assert world.valkey.dbsize() == 0
