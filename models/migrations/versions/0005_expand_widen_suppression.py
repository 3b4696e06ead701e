"""Widen what suppresses an address, let one cover everything, and let a lift name what it lifts."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

SOURCES = "source IN ('keyword', 'carrier', 'operator', 'api', 'bounce', 'complaint', 'one_click', 'wrong_number', 'legal')"
SOURCES_BEFORE = "source IN ('keyword', 'carrier', 'operator', 'api')"


def upgrade() -> None:
    """Add the columns and the wider check. The release before writes rows that cover no more than their category, and no lifts."""
    # The rows that are there are read for the constraints afterwards, without the lock that adding them takes.
    op.execute(f"""
        ALTER TABLE suppression
            ADD COLUMN IF NOT EXISTS everything boolean NOT NULL DEFAULT false, ADD COLUMN IF NOT EXISTS lifts uuid[],
            DROP CONSTRAINT IF EXISTS ck_suppression_source,
            DROP CONSTRAINT IF EXISTS ck_suppression_lifts,
            DROP CONSTRAINT IF EXISTS ck_suppression_everything,
            ADD CONSTRAINT ck_suppression_source CHECK ({SOURCES}) NOT VALID,
            ADD CONSTRAINT ck_suppression_lifts CHECK ((act = 'lift') = (lifts IS NOT NULL)) NOT VALID,
            ADD CONSTRAINT ck_suppression_everything
                CHECK (NOT everything OR (act = 'suppress' AND category IS NULL)) NOT VALID
    """)
    with op.get_context().autocommit_block():
        for name in ("source", "lifts", "everything"):
            op.execute(f"ALTER TABLE suppression VALIDATE CONSTRAINT ck_suppression_{name}")


def downgrade() -> None:
    """Drop them again: refused while there is a row of a source that the release before does not know."""
    op.execute(f"""
        ALTER TABLE suppression
            DROP CONSTRAINT ck_suppression_everything, DROP CONSTRAINT ck_suppression_lifts, DROP CONSTRAINT ck_suppression_source,
            DROP COLUMN lifts, DROP COLUMN everything,
            ADD CONSTRAINT ck_suppression_source CHECK ({SOURCES_BEFORE})
    """)
