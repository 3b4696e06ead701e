"""Add what a list tells of a suppression: when it was said, and why."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty for what was there before; the release before does not look at them."""
    op.execute("ALTER TABLE suppression ADD COLUMN told_at timestamptz, ADD COLUMN reason text")


def downgrade() -> None:
    """Drop them again, with what the lists told."""
    op.execute("ALTER TABLE suppression DROP COLUMN reason, DROP COLUMN told_at")
