"""Add who settled a review, by which act, and why."""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, all of them empty for what was settled before; the release before does not look at them."""
    op.execute("ALTER TABLE review ADD COLUMN settled_by text, ADD COLUMN settled_action_id uuid, ADD COLUMN settled_reason text")


def downgrade() -> None:
    """Drop them again; the operator actions stay."""
    op.execute("ALTER TABLE review DROP COLUMN settled_reason, DROP COLUMN settled_action_id, DROP COLUMN settled_by")
