"""One running house for the scenarios, on the run's own servers, and a tenant with rules that a test can wait for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app.desk.configure import NewRoute, NewTemplate, add_key, add_route, add_tenant, publish_template, store_policy
from app.ground.config import database_url
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from tests.conftest import World
from tests.e2e.house import ROOT, House, environment_of, running_house

DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
SAMPLE = ROOT / "policy" / "documents" / "sample-2026-11-01.yaml"
# Waits that a test can sit out.
HURRIED = {"DAYBOOK_HANDOFF_SECONDS": "4", "DAYBOOK_LEASE_SECONDS": "15"}


@pytest.fixture(scope="session")
def house(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Give a running house on databases of its own; nothing embedded starts, since the URLs are set."""
    environment = environment_of(world.engine.url, "e2e", redis_db=1) | HURRIED
    with running_house(tmp_path_factory.mktemp("house"), environment) as running:
        yield running


def impatient_policy(*, opens_at: datetime) -> dict[str, Any]:
    """Give the sample policy with waits of a second, no cooldowns, and hours for marketing that open at an instant."""
    raw: dict[str, Any] = yaml.safe_load(SAMPLE.read_text())
    for rules in raw["categories"].values():
        rules["cooldown"] = "0s"
    retry = raw["categories"]["transactional"]["retry"]
    retry["backoff"] = {"initial": "1s", "factor": 2, "max": "4s"}
    closes_at = opens_at + timedelta(hours=8)
    raw["categories"]["marketing"]["hours"] = [
        {
            "id": "opens-soon",
            "windows": [{"days": DAYS, "start": f"{opens_at:%H:%M}", "end": f"{closes_at:%H:%M}"}],
        }
    ]
    return raw


@pytest.fixture(scope="session")
def tenant(house: House) -> House:
    """Give the house with the key of a tenant whose rules wait seconds, not minutes."""
    return furnish_impatient(house)


def furnish_impatient(house: House) -> House:
    """Add a tenant whose rules wait seconds, not minutes, with an offer whose hours open soon; give the house with its key."""
    now = datetime.fromisoformat(str(house.sql("SELECT clock_timestamp()")[0][0])).astimezone(UTC)
    opens_at = (now + timedelta(seconds=75)).replace(second=0, microsecond=0)
    engine = create_engine(database_url(house.ready["database_url"]), connect_args={"prepare_threshold": None})
    with Session(engine, expire_on_commit=False) as session:
        tenant_id = add_tenant(session, name="impatient", now=now)
        key = add_key(session, tenant_id=tenant_id, name="test", scopes=("events:write", "events:read", "history:read"), now=now)
        store_policy(session, tenant_id=tenant_id, raw=impatient_policy(opens_at=opens_at), now=now)
        for name, category in (("class-opening", "transactional"), ("offer", "marketing")):
            template = NewTemplate(name, category, ["class"], {"en": "A seat opened in {{ class }}."}, "en")
            publish_template(session, tenant_id=tenant_id, template=template, now=now)
        for name, countries, horizon in (("simulator", ["US"], "86400"), ("short-sighted", ["CA"], "5")):
            route = NewRoute(
                name=name,
                carrier="twilio",
                sender="+15005550006",
                settings={
                    "base_url": house.ready["simulator_url"],
                    "account_sid": DEVELOPMENT_ACCOUNT_SID,
                    "first_check_seconds": "1",
                    "settling_seconds": "2",
                    "horizon_seconds": horizon,
                },
                credentials={"auth_token": DEVELOPMENT_AUTH_TOKEN},
                countries=countries,
                rate_per_second=200,
                burst_count=200,
            )
            add_route(session, tenant_id=tenant_id, route=route, public_url=house.ready["base_url"], now=now)
        session.commit()
    engine.dispose()
    impatient = house.as_tenant(key)
    impatient.offer = impatient.post(impatient.request(template="offer", time_zone="UTC"))
    return impatient


@pytest.fixture(scope="session")
def offer(tenant: House) -> dict[str, Any]:
    """Give the offer that was posted before its hours opened; the test that awaits it runs last."""
    assert tenant.offer is not None
    return tenant.offer
