import base64
from typing import Final

import pytest

from app.ground.config import BadSetting, Settings, database_url, heroku_redis

KEY: Final = base64.urlsafe_b64encode(b"k" * 32).decode()
OTHER_KEY: Final = base64.urlsafe_b64encode(b"\xff" * 32).decode()
ENOUGH: Final = {
    "DATABASE_URL": "postgres://user:secret@db.test:5432/books",
    "REDIS_URL": "redis://redis.test:6379/0",
    "DAYBOOK_KEY_RING": f"k1:{KEY}",
    "DAYBOOK_HASH_RING": f"h1:{KEY}",
    "DAYBOOK_PUBLIC_URL": "https://daybook.test/",
}


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgres_names_the_driver(scheme: str) -> None:
    """Heroku says postgres://, which SQLAlchemy no longer knows."""
    assert database_url(f"{scheme}://u:p@db.test/x?sslmode=require") == "postgresql+psycopg://u:p@db.test/x?sslmode=require"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("redis://redis.test/0", "redis://redis.test/0"),
        ("rediss://:p@redis.test:6380", "rediss://:p@redis.test:6380?ssl_cert_reqs=none"),
        ("rediss://redis.test?db=1", "rediss://redis.test?db=1&ssl_cert_reqs=none"),
        ("rediss://redis.test?ssl_cert_reqs=required", "rediss://redis.test?ssl_cert_reqs=required"),
    ],
)
def test_herokus_self_signed_redis_is_accepted_unless_the_url_says_what_to_check(given: str, used: str) -> None:
    assert heroku_redis(given) == used


def test_the_broker_is_redis_unless_it_is_named() -> None:
    assert Settings.from_env(ENOUGH).broker_url == "redis://redis.test:6379/0"
    assert Settings.from_env({**ENOUGH, "BROKER_URL": "amqp://rabbit.test"}).broker_url == "amqp://rabbit.test"


def test_the_public_url_has_no_slash_at_its_end() -> None:
    assert Settings.from_env(ENOUGH).public_url == "https://daybook.test"


def test_rings_keep_their_order_and_take_url_safe_base64() -> None:
    settings = Settings.from_env(
        {**ENOUGH, "DAYBOOK_KEY_RING": f"k2:{OTHER_KEY}, k1:{KEY}", "DAYBOOK_HASH_RING": f"h1:{OTHER_KEY}"}
    )

    assert settings.key_ring == (("k2", OTHER_KEY.encode()), ("k1", KEY.encode()))
    assert settings.hash_ring == (("h1", b"\xff" * 32),)


@pytest.mark.parametrize("name", sorted(ENOUGH))
@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_setting_that_is_missing_is_named(name: str, value: str | None) -> None:
    env = {**ENOUGH, name: value or ""}

    with pytest.raises(BadSetting, match=f"^{name} is not set"):
        Settings.from_env(env)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "mysql://db.test/x"),
        ("DATABASE_URL", "db.test"),
        ("DAYBOOK_KEY_RING", "k1"),
        ("DAYBOOK_KEY_RING", f"k-1:{KEY}"),
        ("DAYBOOK_KEY_RING", f":{KEY}"),
        ("DAYBOOK_KEY_RING", "k1:not base64!"),
        ("DAYBOOK_KEY_RING", "k1:" + base64.urlsafe_b64encode(b"short").decode()),
        ("DAYBOOK_KEY_RING", "k1:" + base64.urlsafe_b64encode(b"l" * 33).decode()),
        ("DAYBOOK_KEY_RING", f"k1:{KEY},"),
        ("DAYBOOK_HASH_RING", "h1:" + base64.urlsafe_b64encode(b"short").decode()),
        ("DAYBOOK_PUBLIC_URL", "daybook.test"),
        ("DAYBOOK_PUBLIC_URL", "ftp://daybook.test"),
        ("DAYBOOK_WINDOW", "0"),
        ("DAYBOOK_WINDOW", "1.5"),
        ("DAYBOOK_WINDOW", "-3"),
        ("DAYBOOK_WINDOW", "many"),
        ("DAYBOOK_LEASE_SECONDS", "1"),
        ("DAYBOOK_LEASE_SECONDS", "soon"),
        ("DAYBOOK_LEASE_SECONDS", "nan"),
        ("DAYBOOK_VISIBILITY_SECONDS", "0"),
        ("DAYBOOK_VISIBILITY_SECONDS", "0.5"),
        ("DAYBOOK_HANDOFF_SECONDS", "61"),
        ("DAYBOOK_HANDOFF_SECONDS", "inf"),
    ],
)
def test_a_value_that_cannot_be_used_stops_with_one_sentence_that_names_it(name: str, value: str) -> None:
    with pytest.raises(BadSetting) as raised:
        Settings.from_env({**ENOUGH, name: value})

    assert str(raised.value).startswith(f"{name} must ")
    assert "\n" not in str(raised.value)
