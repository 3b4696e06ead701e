"""Add cancellations of whole occasions, and what carriers are asked to drop."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; the release before does not look at them."""
    create_cancellation()
    create_cancelled()
    create_carrier_cancel()
    op.execute("CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON cancelled FOR EACH ROW EXECUTE FUNCTION refuse_rewrite()")
    op.execute("CREATE TRIGGER keep_table BEFORE TRUNCATE ON cancelled FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()")


def downgrade() -> None:
    """Drop them again; what they closed stays closed."""
    for table in ("carrier_cancel", "cancelled", "cancellation"):
        op.drop_table(table)


def create_cancellation() -> None:
    """Create what was called off."""
    op.create_table(
        "cancellation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("excepted", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action_id", sa.Uuid(), nullable=False),
        sa.Column("begun_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("cut_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancelled_count", sa.BigInteger(), nullable=True),
        sa.Column("handed_off_count", sa.BigInteger(), nullable=True),
        sa.Column("joined_count", sa.BigInteger(), nullable=True),
        sa.Column("closed_count", sa.BigInteger(), nullable=True),
        sa.Column("excepted_count", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "num_nulls(cut_at, cancelled_count, handed_off_count, joined_count, closed_count, excepted_count) IN (0, 6)",
            name=op.f("ck_cancellation_counted_at_the_cut"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cancellation")),
        sa.UniqueConstraint("tenant_id", "key", name=op.f("uq_cancellation_tenant_id_key")),
    )


def create_cancelled() -> None:
    """Create what a cancellation found."""
    op.create_table(
        "cancelled",
        sa.Column("cancellation_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("found", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "found IN ('cancelled', 'handed_off', 'joined', 'closed', 'excepted')", name=op.f("ck_cancelled_found")
        ),
        sa.PrimaryKeyConstraint("cancellation_id", "event_id", "channel", name=op.f("pk_cancelled")),
    )
    op.create_index(op.f("ix_cancelled_event_id_channel"), "cancelled", ["event_id", "channel"])


def create_carrier_cancel() -> None:
    """Create what carriers are asked to drop."""
    op.create_table(
        "carrier_cancel",
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ask_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ask_count", sa.BigInteger(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("observation_id", sa.Uuid(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(ask_at IS NULL) = (ended_at IS NOT NULL)", name=op.f("ck_carrier_cancel_ended")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_carrier_cancel")),
    )
    op.create_index(
        "ix_carrier_cancel_ask_at", "carrier_cancel", ["ask_at", "attempt_id"], postgresql_where=sa.text("ask_at IS NOT NULL")
    )
