"""Add what tenants spend by route, country and hour, and pauses of a country on a route."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table, and the column; the release before takes the pause of a country for one of the whole route."""
    op.create_table(
        "spend",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("hour", sa.DateTime(timezone=True), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("country", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("amount", sa.Numeric(), nullable=False),
        sa.Column("attempt_count", sa.BigInteger(), nullable=False),
        sa.Column("let_pass", sa.Numeric(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "hour", "route_id", "country", "currency", name=op.f("pk_spend")),
    )
    op.execute("ALTER TABLE pause ADD COLUMN country text")


def downgrade() -> None:
    """Drop them again, with what was counted."""
    op.execute("ALTER TABLE pause DROP COLUMN country")
    op.drop_table("spend")
