"""Index contacts by address: a suppression knows the address only, and a list goes out with the people it is about."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INDEX = "ix_contact_tenant_id_address_hash"


def upgrade() -> None:
    """Build the index without holding acceptance up; what an interrupted build left behind is no index."""
    with op.get_context().autocommit_block():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {INDEX}")
        op.execute(f"CREATE INDEX CONCURRENTLY {INDEX} ON contact (tenant_id, address_hash)")


def downgrade() -> None:
    """Drop it again."""
    op.execute(f"DROP INDEX {INDEX}")
