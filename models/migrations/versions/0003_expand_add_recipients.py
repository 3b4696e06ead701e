"""Add recipients, consents and preferences."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

APPEND_ONLY = ("recipient", "consent", "preference")
CATEGORIES = "category IN ('otp', 'transactional', 'operational', 'marketing')"
KINDS = "kind ~ '^[a-z][a-z0-9_]{0,49}$'"


def upgrade() -> None:
    """Create the tables and their guards; the release before does not look at them."""
    create_recipient()
    create_consent()
    create_preference()
    for table in APPEND_ONLY:
        op.execute(f"CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_rewrite()")
        op.execute(f"CREATE TRIGGER keep_table BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()")


def downgrade() -> None:
    """Drop them again, with what people agreed to and asked for: export that first."""
    for table in reversed(APPEND_ONLY):
        op.drop_table(table)


def create_recipient() -> None:
    """Create what a tenant says of its people."""
    op.create_table(
        "recipient",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("ref", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("contacts", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("time_zone", sa.Text(), nullable=True),
        sa.Column("locale", sa.Text(), nullable=True),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.CheckConstraint("version > 0", name=op.f("ck_recipient_version")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recipient")),
        sa.UniqueConstraint("tenant_id", "ref", "version", name=op.f("uq_recipient_tenant_id_ref_version")),
    )


def create_consent() -> None:
    """Create the evidence that an address may be contacted."""
    op.create_table(
        "consent",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.Column("contact_id", sa.Uuid(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=True),
        sa.Column("captured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("wording", sa.Text(), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.CheckConstraint("act IN ('grant', 'withdraw')", name=op.f("ck_consent_act")),
        sa.CheckConstraint(CATEGORIES, name=op.f("ck_consent_category")),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_consent_channel")),
        sa.CheckConstraint("expires_at > captured_at", name=op.f("ck_consent_expiry")),
        sa.CheckConstraint("act = 'withdraw' OR kind IS NOT NULL", name=op.f("ck_consent_granted_kind")),
        sa.CheckConstraint(KINDS, name=op.f("ck_consent_kind")),
        sa.CheckConstraint("act = 'grant' OR expires_at IS NULL", name=op.f("ck_consent_withdrawn_for_good")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_consent")),
        sa.UniqueConstraint("tenant_id", "content_hash", name=op.f("uq_consent_tenant_id_content_hash")),
    )
    op.create_index(op.f("ix_consent_tenant_id_address_hash"), "consent", ["tenant_id", "address_hash"])
    op.create_index(op.f("ix_consent_tenant_id_id"), "consent", ["tenant_id", "id"])


def create_preference() -> None:
    """Create what people asked for."""
    op.create_table(
        "preference",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.Column("contact_id", sa.Uuid(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("wanted", sa.Boolean(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.CheckConstraint(CATEGORIES, name=op.f("ck_preference_category")),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_preference_channel")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_preference")),
        sa.UniqueConstraint("tenant_id", "content_hash", name=op.f("uq_preference_tenant_id_content_hash")),
    )
    op.create_index(op.f("ix_preference_tenant_id_address_hash"), "preference", ["tenant_id", "address_hash"])
    op.create_index(op.f("ix_preference_tenant_id_id"), "preference", ["tenant_id", "id"])
