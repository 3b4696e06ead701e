"""`daybook up`: run everything on this machine until Ctrl-C."""

from __future__ import annotations

import json
import os
import secrets
from functools import partial
from pathlib import Path

import click

from app.ground.errors import DaybookError
from local.supervisor import Ready, Supervisor

CHECKOUT = Path(__file__).resolve().parent.parent


@click.command()
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="Keep data, logs and keys here, not in .daybook.")
def up(state: Path | None) -> None:
    """Run servers, web, workers, beat, Flower and a simulated carrier until Ctrl-C.

    DATABASE_URL, REDIS_URL and BROKER_URL are used where they are set; what is not set is started here.
    Data, logs and keys stay in .daybook, so that the next run finds them again.
    """
    try:
        supervisor = Supervisor(CHECKOUT, os.environ, folder=state, say=partial(click.echo, err=True))
        supervisor.run(partial(announce, logs=supervisor.state.logs))
    except DaybookError as error:
        raise click.ClickException(str(error)) from error


def announce(ready: Ready, *, logs: Path) -> None:
    """Say where everything is, and how to try it."""
    event = {
        "type": "class.opening",
        "subject": f"c-{secrets.token_hex(3)}",
        "recipient": {"ref": "m-1842", "sms": "+12015550123", "time_zone": "America/New_York", "locale": "en-US"},
        "template": "class-opening",
        "data": {"class": "Spin 18:00"},
        "channels": ["sms"],
    }
    click.echo(
        f"""
Daybook is up.

  API        {ready.base_url}
  simulator  {ready.simulator_url}
  Flower     {ready.flower_url}
  key        {ready.api_key}
  logs       {logs}

Post an event:

  curl -sS {ready.base_url}/v1/events -H 'Authorization: Bearer {ready.api_key}' -H 'Content-Type: application/json' -d '{json.dumps(event)}'

and see what became of it:

  .venv/bin/daybook trace <event_id>

Ctrl-C stops everything; the next run finds the data again.
"""  # noqa: E501 - one line to paste
    )
