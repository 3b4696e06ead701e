"""`daybook seed`: make the development tenant, with keys, a simulator route, a template and the sample policies."""

from __future__ import annotations

import json
from pathlib import Path

import click
import yaml

from app.desk.configure import NewRoute
from app.desk.seed import seed as seed_tenant
from app.ground.config import settings
from app.ground.db import transact
from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN

DOCUMENTS = Path(__file__).resolve().parent.parent / "policy" / "documents"


@click.command()
@click.option("--simulator-url", required=True, help="Where the carrier simulator listens.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def seed(simulator_url: str, *, as_json: bool) -> None:
    """Make what is missing of the development tenant; running it again gives the same keys."""
    route = NewRoute(
        name="simulator",
        carrier="twilio",
        sender="+15005550006",
        settings={
            "base_url": simulator_url.rstrip("/"),
            "account_sid": DEVELOPMENT_ACCOUNT_SID,
            # The simulator settles in milliseconds; a carrier takes minutes.
            "first_check_seconds": "2",
            "settling_seconds": "5",
            # It answers no STOP by itself, as a long code of Twilio's would.
            "opt_out_confirmation": "daybook",
        },
        credentials={"auth_token": DEVELOPMENT_AUTH_TOKEN},
        rate_per_second=100,
        burst_count=100,
    )
    samples = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in sorted(DOCUMENTS.glob("sample-*.yaml"))]
    seeded = transact(
        lambda tx: seed_tenant(tx.session, samples=samples, route=route, public_url=settings().public_url, now=tx.now)
    )
    if as_json:
        click.echo(json.dumps({"tenant": seeded.tenant, "api_key": seeded.api_key, "operator_key": seeded.operator_key}))
        return
    click.echo(f"tenant        {seeded.tenant}\napi key       {seeded.api_key}\noperator key  {seeded.operator_key}")
