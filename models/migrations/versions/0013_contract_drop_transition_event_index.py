"""Drop the index of transitions by event: history is read by intent and by the feed."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop it without stopping writers; no release looked for anything by it."""
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_transition_event_id")


def downgrade() -> None:
    """Make it again."""
    with op.get_context().autocommit_block():
        op.execute("CREATE INDEX CONCURRENTLY IF NOT EXISTS ix_transition_event_id ON transition (event_id)")
