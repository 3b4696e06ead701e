"""Index the attempts that a rule answers for if nothing is heard of them."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Build it beside the traffic. One that broke off half-way is there and not valid: it is built anew."""
    with op.get_context().autocommit_block():
        op.execute("DROP INDEX CONCURRENTLY IF EXISTS ix_attempt_unheard")
        op.execute("CREATE INDEX CONCURRENTLY ix_attempt_unheard ON attempt (unheard_at, id) WHERE unheard_at IS NOT NULL")


def downgrade() -> None:
    """Drop it again."""
    op.execute("DROP INDEX ix_attempt_unheard")
