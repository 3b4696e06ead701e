"""Add the small indexes that reviews and reconciliation views are read by."""

from __future__ import annotations

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Each holds what should be rare: a row that is not is looked at, and written to no index.
INDEXES = {
    "ix_review_open": "review (tenant_id, id) WHERE settled_at IS NULL",
    "ix_intent_close_requested": "intent (tenant_id, id) WHERE close_requested_at IS NOT NULL",
    "ix_attempt_contradicted": "attempt (tenant_id, id) WHERE state = 'delivered' AND error_class IS NOT NULL",
    "ix_observation_conflict": "observation (tenant_id, id) WHERE conflict",
    "ix_transition_after_cancel": "transition (tenant_id, id) WHERE from_state = 'cancelled'",
}


def upgrade() -> None:
    """Build them beside the traffic; what a run that was interrupted left behind is no index, and is built anew."""
    with op.get_context().autocommit_block():
        for name, of in INDEXES.items():
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
            op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {of}")


def downgrade() -> None:
    """Drop them again: they are only a saving."""
    with op.get_context().autocommit_block():
        for name in reversed(INDEXES):
            op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
