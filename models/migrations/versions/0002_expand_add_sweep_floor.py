"""Add the sweeps' low-water marks."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; the release before does not look at it."""
    op.create_table(
        "sweep_floor",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("floor_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_sweep_floor")),
    )


def downgrade() -> None:
    """Drop it again: the marks are only a saving."""
    op.drop_table("sweep_floor")
