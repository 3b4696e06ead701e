"""Configuration: versions that never change, and keys of which only the hash is kept."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from psycopg import errors
from sqlalchemy.orm import Session

from app.desk.configure import (
    BadTemplateVersion,
    NewRoute,
    NewTemplate,
    NoSuchTenant,
    add_key,
    get_tenant,
    publish_template,
    revoke_key,
)
from app.desk.seed import seed
from app.ground.db import rows
from app.ground.keys import read_api_key
from app.ledger.routes import read_routes
from tests.making import ACCOUNT, NOON, SENDER, TWILIO, make_house, make_template, sample

ROUTE = NewRoute(
    name="simulator", carrier="twilio", sender=SENDER, settings=TWILIO, credentials={"auth_token": ACCOUNT.auth_token}
)


def test_a_template_published_again_is_the_next_version(session: Session) -> None:
    house = make_house(session)

    assert [make_template(session, house.tenant_id, body=f"{n} {{{{ class }}}}") for n in (2, 3)] == [2, 3]


@pytest.mark.parametrize(
    ("bodies", "match"), [({"de": "Hallo"}, "no body for the default locale"), ({"en": "Hi {{ name }}"}, "uses name")]
)
def test_a_template_that_cannot_be_rendered_is_not_published(session: Session, bodies: dict[str, str], match: str) -> None:
    template = NewTemplate(name="hi", category="transactional", variables=["class"], bodies=bodies, default_locale="en")

    with pytest.raises(BadTemplateVersion, match=match):
        publish_template(session, tenant_id=make_house(session).tenant_id, template=template, now=NOON)


@pytest.mark.parametrize("table", ["policy_version", "template_version", "route"])
def test_what_was_published_is_never_changed(session: Session, table: str) -> None:
    make_house(session)

    with pytest.raises(errors.RestrictViolation):
        rows(session, f"UPDATE {table} SET name = 'other'")


def test_of_a_key_only_the_hash_is_kept_and_it_can_be_revoked_once(session: Session) -> None:
    house = make_house(session)
    text = add_key(session, tenant_id=house.tenant_id, name="app", scopes=["events:write"], now=NOON)
    read = read_api_key(text)
    assert read is not None

    (row,) = rows(session, "SELECT id, secret_hash FROM api_key")

    assert (row.id, bytes(row.secret_hash)) == read
    assert text.rsplit("_", 1)[-1].encode() not in bytes(row.secret_hash)
    assert [revoke_key(session, tenant_id=house.tenant_id, key_id=row.id, now=NOON) for _ in range(2)] == [True, False]


def test_a_routes_credentials_are_sealed_and_open_again(session: Session) -> None:
    house = make_house(session)

    (row,) = rows(session, "SELECT sealed_credentials FROM route")

    assert ACCOUNT.auth_token.encode() not in bytes(row.sealed_credentials)
    route = read_routes(session, [house.route_id])[house.route_id]
    assert route.settings.credentials == {"auth_token": ACCOUNT.auth_token}
    assert (route.horizon_for, route.settling_for) == (timedelta(hours=24), timedelta(minutes=10))


def test_seeding_again_keeps_the_keys_and_adds_nothing(session: Session) -> None:
    first = seed(session, samples=[sample()], route=ROUTE, public_url="http://here", now=NOON)
    again = seed(session, samples=[sample()], route=ROUTE, public_url="http://here", now=NOON)

    assert (first.api_key, first.operator_key) == (again.api_key, again.operator_key)
    counts = "SELECT (SELECT count(*) FROM route) + (SELECT count(*) FROM template_version) + (SELECT count(*) FROM tenant) AS n"
    assert rows(session, counts)[0].n == 4


@pytest.mark.parametrize(
    ("now", "versions"),
    [
        ("2026-11-30T23:59:59.999999Z", ["2026-11-01", "2026-12-01", "2027-01-01"]),
        ("2026-12-01T00:00:00Z", ["2026-12-01", "2027-01-01"]),
        ("2028-01-01T00:00:00Z", ["2027-01-01"]),
    ],
)
def test_the_sample_that_has_begun_is_seeded_with_those_that_follow_it(session: Session, now: str, versions: list[str]) -> None:
    """On any day something is in force, and what is published ahead takes over by itself."""
    dates = ("2026-12-01", "2027-01-01", "2026-11-01")
    samples = [sample() | {"version": date, "effective_from": f"{date}T00:00:00Z"} for date in dates]

    seed(session, samples=samples, route=ROUTE, public_url="http://here", now=datetime.fromisoformat(now))

    found = rows(session, "SELECT version FROM policy_version ORDER BY effective_from")
    assert [row.version for row in found] == versions


def test_seeding_from_another_place_puts_a_new_route_in_front(session: Session) -> None:
    seed(session, samples=[sample()], route=ROUTE, public_url="http://here", now=NOON)
    seed(session, samples=[sample()], route=ROUTE, public_url="http://there", now=NOON)

    found = rows(session, "SELECT name, receipt_url FROM route ORDER BY priority")
    assert [(row.name, row.receipt_url.startswith("http://there/")) for row in found] == [
        ("simulator-2", True),
        ("simulator", False),
    ]


def test_a_tenant_that_is_not_there_is_named(session: Session) -> None:
    with pytest.raises(NoSuchTenant, match="no tenant named 'gone'"):
        get_tenant(session, name="gone")
