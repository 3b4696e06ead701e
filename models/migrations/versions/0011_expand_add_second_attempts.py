"""Add what let an attempt follow another one, and when a rule answers for one of which nothing is heard."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, empty for what was there before; the release before neither reads nor writes them."""
    # As in 0004: what comes before the commit may be run again.
    op.execute("""
        ALTER TABLE attempt ADD COLUMN IF NOT EXISTS allowed_by text, ADD COLUMN IF NOT EXISTS unheard_at timestamptz,
            DROP CONSTRAINT IF EXISTS ck_attempt_allowed_by,
            ADD CONSTRAINT ck_attempt_allowed_by CHECK (allowed_by IN ('retry', 'not_found', 'waited', 'person')) NOT VALID
    """)
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE attempt VALIDATE CONSTRAINT ck_attempt_allowed_by")


def downgrade() -> None:
    """Drop them again, and with them which rule let a second text go."""
    op.execute("ALTER TABLE attempt DROP CONSTRAINT ck_attempt_allowed_by, DROP COLUMN unheard_at, DROP COLUMN allowed_by")
