"""Where the books are: from the environment, or from the `daybook up` that runs in another terminal."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

import click
from psycopg import Error as PsycopgError
from rich.console import Console
from sqlalchemy.exc import DBAPIError

from app.ground.config import settings
from app.ground.db import CommitUnknown, DatabaseAway
from app.ground.errors import DaybookError
from local.leftovers import MARK_NAME
from local.state import State

CHECKOUT: Final = Path(__file__).resolve().parent.parent
RINGS: Final = ("DAYBOOK_KEY_RING", "DAYBOOK_HASH_RING")


class Trouble(click.ClickException):
    """The command could not be run at all, which is neither fine nor a finding."""

    exit_code = 2


class NotUp(DaybookError):
    """No Daybook is up for this checkout, and the environment names none."""


class NoRings(DaybookError):
    """The running Daybook was given its key rings from outside; this terminal needs them too."""


def find_running(environ: Mapping[str, str] = os.environ) -> Mapping[str, str] | None:
    """Find what the running `daybook up` wrote down about itself; None when none is up."""
    file = _state(environ).ready_file
    try:
        ready: dict[str, str] = json.loads(file.read_text())
    except FileNotFoundError:
        return None
    return ready


def complete(environ: MutableMapping[str, str]) -> None:
    """Name the running Daybook's database, Redis and rings in an environment that names no database."""
    if environ.get("DATABASE_URL"):
        return
    ready = find_running(environ)
    if ready is None:
        raise NotUp(f"DATABASE_URL is not set, and no Daybook is up in {_state(environ).folder}: run `daybook up`, or set it")
    found = {
        "DATABASE_URL": ready["database_url"],
        "REDIS_URL": ready["redis_url"],
        "DAYBOOK_PUBLIC_URL": ready["base_url"],
        **{name: ring for name, ring in _rings(environ).items() if not environ.get(name)},
    }
    missing = [name for name in RINGS if not environ.get(name) and name not in found]
    if missing:
        raise NoRings(f"the running Daybook got {' and '.join(missing)} from its environment: set the same here")
    for name, value in found.items():
        environ[name] = environ.get(name) or value


@contextmanager
def books() -> Iterator[None]:
    """Let a command reach the books, and say in one sentence why it cannot."""
    try:
        complete(os.environ)
        settings()
        yield
    except (DatabaseAway, CommitUnknown) as error:
        raise Trouble(f"the database does not answer ({error})") from error
    except DaybookError as error:
        raise Trouble(str(error)) from error
    except (DBAPIError, PsycopgError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        raise Trouble(f"the database refuses ({type(cause).__name__}); is it migrated, and this version's?") from error


def actor() -> str:
    """Name whoever types, for what is kept of their acts."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):  # a container's user without a name
        return f"cli:{os.getuid()}"


def as_text(value: object) -> str:
    """Write a value as JSON, times as RFC 3339 and ids as text."""
    return json.dumps(value, default=lambda v: v.isoformat() if isinstance(v, datetime) else str(v), indent=1)


def console() -> Console:
    """Give a console on standard output, as wide as the terminal."""
    return Console(highlight=False)


def _state(environ: Mapping[str, str]) -> State:
    # The folder is only read here: `daybook up` makes it.
    return State(Path(environ.get(MARK_NAME) or CHECKOUT / ".daybook"))


def _rings(environ: Mapping[str, str]) -> Mapping[str, str]:
    state = _state(environ)
    return state.rings() if (state.folder / "rings.json").exists() else {}
