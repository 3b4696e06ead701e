"""Health and metrics: alive without a database, ready only with everything, figures for operators."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from flask.testing import FlaskClient
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy import Engine, text

from app.flows import readiness
from app.flows.readiness import Part
from app.ground.db import DatabaseAway
from app.ledger.metrics import CONTENT_TYPE
from tests.web.calling import Api, body_of, code_of, make_key, problem_of


@pytest.fixture
def revision(fresh_database: Engine) -> Iterator[Engine]:
    """Let a test change the revision that the database says it is at."""
    with fresh_database.begin() as connection:
        before = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
    yield fresh_database
    set_revision(fresh_database, before)


def set_revision(engine: Engine, revision: str) -> None:
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version"))
        connection.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})


def test_the_process_is_live_whatever_the_database_does(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "transact", _away)

    assert body_of(client.get("/health/live")) == {"live": True}


def test_everything_in_place_is_ready(client: FlaskClient, fresh_database: Engine) -> None:
    del fresh_database

    assert body_of(client.get("/health/ready")) == {"ready": True}


def test_a_database_away_is_named(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "transact", _away)

    problem = problem_of(client.get("/health/ready"))

    assert (problem["code"], [e["detail"] for e in problem["errors"]]) == ("not_ready", ["database"])


def test_redis_away_is_named(client: FlaskClient, fresh_database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    del fresh_database
    monkeypatch.setattr(readiness, "client", lambda: redis.Redis(port=1, retry=Retry(NoBackoff(), 0)))

    problem = problem_of(client.get("/health/ready"))

    assert [e["detail"] for e in problem["errors"]] == [Part.REDIS]


def test_a_database_that_was_not_migrated_is_named(
    client: FlaskClient, revision: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_revisions", lambda: ("0002", frozenset({"0001", "0002"})))
    set_revision(revision, "0001")

    problem = problem_of(client.get("/health/ready"))

    assert [e["detail"] for e in problem["errors"]] == [Part.MIGRATIONS]


def test_a_newer_releases_migration_does_not_take_the_older_one_down(client: FlaskClient, revision: Engine) -> None:
    """The release before runs on the new schema while it is being replaced."""
    set_revision(revision, "9999")

    assert client.get("/health/ready").status_code == 200


def test_metrics_are_for_operators(api: Api) -> None:
    """They count what every tenant does, and name routes."""
    api.accepted()

    metrics = api.get("/metrics")

    assert metrics.content_type == CONTENT_TYPE
    assert "daybook_outbox_rows" in metrics.get_data(as_text=True)
    assert code_of(make_key(api, "history:read").get("/metrics")) == (403, "scope_missing")


def _away(*_: object) -> object:
    raise DatabaseAway("away")
