"""Run a carrier to test against."""

from __future__ import annotations

import json
import logging
import signal
import sys
from pathlib import Path

import click

from simulator import DEVELOPMENT_ACCOUNT_SID, DEVELOPMENT_AUTH_TOKEN
from simulator.dialect import Account
from simulator.journal import StateRefused
from simulator.reading import Fields, RulesRefused, anything, items
from simulator.server import Simulator

STATE = click.Path(dir_okay=False, path_type=Path)
RULES = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", default=8900, show_default=True, help="0 takes any free port; the first log line names it.")
@click.option("--seed", type=click.IntRange(min=0), help="Same seed and same requests, same book. Left out, each start differs.")
@click.option("--state", type=STATE, help="Keep the book in this file and go on from it.")
@click.option("--account-sid", default=DEVELOPMENT_ACCOUNT_SID, show_default=True)
@click.option("--auth-token", default=DEVELOPMENT_AUTH_TOKEN, show_default=True)
@click.option("--rules", "rules_file", type=RULES, help='The script of faults: {"rules": [...]}, as PUT /_sim/rules takes it.')
@click.option("--retry-ms", default=200, show_default=True, help="How long after a failed receipt call the next one follows.")
def simulator(
    *,
    host: str,
    port: int,
    seed: int | None,
    state: Path | None,
    account_sid: str,
    auth_token: str,
    rules_file: Path | None,
    retry_ms: int,
) -> None:
    """Run a carrier that speaks Twilio's dialect and misbehaves on request."""
    log_to_stderr()
    account = Account(account_sid, auth_token)
    try:
        rules = None if rules_file is None else rules_in(rules_file)
        running = Simulator(
            host=host, port=port, account=account, seed=seed, state=state, rules=rules, retry_spacing=retry_ms / 1000
        )
    except (OSError, StateRefused, RulesRefused) as error:
        raise click.ClickException(str(error)) from error
    run_until_told(running)


def rules_in(rules_file: Path) -> list[object]:
    """Read a script of faults from a file."""
    fields = Fields(read_json(rules_file), str(rules_file))
    rules = fields.get("rules", items(anything))
    fields.end()
    return list(rules)


def read_json(file: Path) -> object:
    """Read JSON."""
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise RulesRefused(f"{file}: JSON is wanted, {error}") from error


def run_until_told(running: Simulator) -> None:
    """Serve until SIGTERM or SIGINT."""
    stops = {signal.SIGTERM, signal.SIGINT}
    # Waited for, not handled: a handler that sets an event can interrupt the very thread that holds the event's lock.
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    with running:
        signal.sigwait(stops)


def log_to_stderr() -> None:
    """Write the simulator's log, one JSON line per thing."""
    log = logging.getLogger("simulator")
    log.addHandler(logging.StreamHandler(sys.stderr))
    log.setLevel(logging.INFO)
