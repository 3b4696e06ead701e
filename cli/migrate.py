"""`daybook migrate`: bring the database to the newest schema."""

from __future__ import annotations

from pathlib import Path

import click
from alembic import command
from alembic.config import Config

from app.ground.config import settings

ROOT = Path(__file__).resolve().parent.parent


@click.command()
def migrate() -> None:
    """Bring the database that DATABASE_URL names to the newest schema."""
    config = Config(ROOT / "alembic.ini")
    config.set_main_option("script_location", str(ROOT / "models" / "migrations"))
    config.attributes["database_url"] = settings().database_url
    command.upgrade(config, "head")
    click.echo("the schema is at the newest revision", err=True)
