"""Add what a message costs, and what a decision looks at for it: the number's type and its part of the country."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, all of them empty for what was there before; the release before does not look at them."""
    # The rows that are there are read for the constraint afterwards, without the lock that adding it takes. That is
    # past a commit, so what comes before it may be run again.
    op.execute("""
        ALTER TABLE attempt ADD COLUMN IF NOT EXISTS price numeric, ADD COLUMN IF NOT EXISTS currency text,
            DROP CONSTRAINT IF EXISTS ck_attempt_price,
            ADD CONSTRAINT ck_attempt_price CHECK ((price IS NULL) = (currency IS NULL)) NOT VALID
    """)
    op.execute("ALTER TABLE intent ADD COLUMN IF NOT EXISTS number_type text, ADD COLUMN IF NOT EXISTS subdivisions text[]")
    with op.get_context().autocommit_block():
        op.execute("ALTER TABLE attempt VALIDATE CONSTRAINT ck_attempt_price")


def downgrade() -> None:
    """Drop them again, with the prices."""
    op.execute("ALTER TABLE intent DROP COLUMN subdivisions, DROP COLUMN number_type")
    op.execute("ALTER TABLE attempt DROP CONSTRAINT ck_attempt_price, DROP COLUMN currency, DROP COLUMN price")
