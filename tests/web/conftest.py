"""The edge under test: one app, and a tenant whose work is committed and wiped afterwards."""

from __future__ import annotations

import pytest
from flask import Flask
from flask.testing import FlaskClient
from sqlalchemy import Engine

from tests.conftest import World
from tests.web.calling import Api, make_api
from web import create_app


@pytest.fixture(scope="session")
def web_app(world: World) -> Flask:
    """Make the app once: it holds no state."""
    del world  # it sets the environment that the app reads
    return create_app()


@pytest.fixture
def client(web_app: Flask) -> FlaskClient:
    """Give a client without a key."""
    return web_app.test_client()


@pytest.fixture
def api(client: FlaskClient, fresh_database: Engine) -> Api:
    """Give a tenant that may do everything."""
    return make_api(client, fresh_database)


@pytest.fixture
def other(client: FlaskClient, fresh_database: Engine) -> Api:
    """Give another tenant that may do everything."""
    return make_api(client, fresh_database)
