"""Add what people write to numbers of ours, and the raw calls that brought it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SOURCES = "source IN ('keyword', 'carrier', 'operator', 'api', 'bounce', 'complaint', 'one_click', 'wrong_number', 'legal')"


def upgrade() -> None:
    """Create the tables; the release before does not look at them."""
    op.execute("CREATE SEQUENCE inbound_position")
    op.create_table(
        "inbound",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=True),
        sa.Column("hash_key_id", sa.Text(), nullable=True),
        sa.Column("refs", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_text", sa.LargeBinary(), nullable=False),
        sa.Column("word", sa.Text(), nullable=False),
        sa.Column("tier", sa.Text(), nullable=True),
        sa.Column("scope", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("answered", sa.Boolean(), nullable=False),
        sa.Column("review", sa.Boolean(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("confirmation", sa.Text(), nullable=True),
        sa.Column("repeat_count", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("acted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(status = 'acted') = (acted_at IS NOT NULL)", name=op.f("ck_inbound_acted")),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_inbound_channel")),
        sa.CheckConstraint(SOURCES, name=op.f("ck_inbound_source")),
        sa.CheckConstraint("status IN ('waiting', 'acted', 'quarantined')", name=op.f("ck_inbound_status")),
        sa.CheckConstraint("word IN ('opt_out', 'opt_in', 'help', 'none')", name=op.f("ck_inbound_word")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inbound")),
        sa.UniqueConstraint("route_id", "dedupe_key", name=op.f("uq_inbound_route_id_dedupe_key")),
        sa.UniqueConstraint("tenant_id", "position", name=op.f("uq_inbound_tenant_id_position")),
    )
    op.create_index("ix_inbound_waiting", "inbound", ["received_at", "id"], postgresql_where=sa.text("status = 'waiting'"))
    op.create_index("ix_inbound_unplaced", "inbound", ["id"], postgresql_where=sa.text("position IS NULL"))
    op.create_table(
        "inbound_raw",
        sa.Column("inbound_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_call", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("inbound_id", name=op.f("pk_inbound_raw")),
    )


def downgrade() -> None:
    """Drop them again, with what people wrote; what it made of them stands among the suppressions."""
    op.drop_table("inbound_raw")
    op.drop_table("inbound")
    op.execute("DROP SEQUENCE inbound_position")
