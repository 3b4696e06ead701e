"""Let a route have one tripped breaker per country at a time: many workers that find it are one fact."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

INDEX = "uq_pause_tripped_breaker"


def upgrade() -> None:
    """Build the index without holding anybody up; what an interrupted build left behind is no index."""
    with op.get_context().autocommit_block():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")
        op.execute(
            f"CREATE UNIQUE INDEX CONCURRENTLY {INDEX} ON pause (route_id, country) "
            "WHERE ended_at IS NULL AND cause = 'spend_breaker'"
        )


def downgrade() -> None:
    """Drop it again."""
    op.execute(f"DROP INDEX {INDEX}")
