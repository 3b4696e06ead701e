"""`python -m local.migrations`: build the schema by the migrations, and say where the models want another."""

from __future__ import annotations

import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.util import CommandError

from app.ground.config import database_url
from local import postgres
from local.postgres import start_postgres
from local.processes import stop
from local.state import free_port, temporary_folder

ROOT = Path(__file__).parent.parent


def alembic_config(url: str) -> Config:
    """Point Alembic at this checkout's migrations and one database."""
    config = Config(str(ROOT / "alembic.ini"))
    config.set_main_option("script_location", str(ROOT / "models" / "migrations"))
    config.attributes["database_url"] = database_url(url)
    return config


def main() -> None:
    """Check on a database of its own, gone afterwards."""
    with temporary_folder() as folder:
        server = start_postgres(folder / "postgres", free_port(), durable=False)
        try:
            command.upgrade(alembic_config(server.url), "head")
            command.check(alembic_config(server.url))
        except CommandError as error:
            sys.exit(str(error))
        finally:
            if server.process is not None:
                stop(server.process, number=postgres.STOP_SIGNAL, grace_seconds=10)


if __name__ == "__main__":
    main()
