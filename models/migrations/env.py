"""Run migrations, one transaction each, with time-outs so that a busy table fails the release instead of the site."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine, pool, text

from models.all import Base


def run() -> None:
    """Bring the database that DATABASE_URL names to the head revision."""
    # The URL is handed over by whoever calls Alembic: models know no configuration.
    url = context.config.attributes["database_url"]
    engine = create_engine(url, poolclass=pool.NullPool, connect_args={"prepare_threshold": None})
    with engine.connect() as connection:
        context.configure(
            connection=connection, target_metadata=Base.metadata, transaction_per_migration=True, compare_server_default=True
        )
        with context.begin_transaction():
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
            connection.execute(text("SET LOCAL statement_timeout = '10min'"))
            context.run_migrations()


run()
