"""Create the books: ledger, work, people, rules, desk."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


APPEND_ONLY = (
    "event",
    "decision",
    "observation",
    "transition",
    "joining",
    "suppression",
    "operator_action",
    "policy_version",
    "template_version",
    "route",
    "contact",
)

GUARD = """
CREATE OR REPLACE FUNCTION refuse_rewrite() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('daybook.retention', true) = 'on' THEN
        IF TG_LEVEL = 'STATEMENT' THEN RETURN NULL; END IF;
        RETURN CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
    END IF;
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'restrict_violation';
END $$
"""


def guard() -> None:
    op.execute(GUARD)
    for table in APPEND_ONLY:
        op.execute(f"CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_rewrite()")
        op.execute(f"CREATE TRIGGER keep_table BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()")


def upgrade() -> None:
    op.execute("CREATE SEQUENCE lease")
    op.create_table(
        "api_key",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.LargeBinary(), nullable=False),
        sa.Column("scopes", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_key")),
    )
    op.create_table(
        "contact",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("sealed_address", sa.LargeBinary(), nullable=False),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("country", sa.Text(), nullable=True),
        sa.Column("zones", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_contact_channel")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_contact")),
        sa.UniqueConstraint(
            "tenant_id",
            "recipient_ref",
            "channel",
            "address_hash",
            name=op.f("uq_contact_tenant_id_recipient_ref_channel_address_hash"),
        ),
    )
    op.create_table(
        "decision",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("policy_version_id", sa.Uuid(), nullable=True),
        sa.Column("moment", sa.Text(), nullable=False),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("evidence", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("decided_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("moment IN ('acceptance', 'dispatch')", name=op.f("ck_decision_moment")),
        sa.CheckConstraint("verdict IN ('allow', 'defer', 'suppress')", name=op.f("ck_decision_verdict")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decision")),
    )
    op.create_index(op.f("ix_decision_intent_id"), "decision", ["intent_id"], unique=False)
    op.create_table(
        "dispatch_floor",
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("floor_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("lane", "route_id", name=op.f("pk_dispatch_floor")),
    )
    op.create_table(
        "event",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("key_given", sa.Boolean(), nullable=False),
        sa.Column("business_key", sa.Text(), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("template_name", sa.Text(), nullable=False),
        sa.Column("template_version", sa.BigInteger(), nullable=False),
        sa.Column("policy_version_id", sa.Uuid(), nullable=True),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("not_before", sa.DateTime(timezone=True), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("stake", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("category IN ('otp', 'transactional', 'operational', 'marketing')", name=op.f("ck_event_category")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_event")),
        sa.UniqueConstraint("tenant_id", "key_given", "key", name=op.f("uq_event_tenant_id_key_given_key")),
    )
    op.create_index(op.f("ix_event_tenant_id_business_key"), "event", ["tenant_id", "business_key"], unique=False)
    op.create_index(op.f("ix_event_tenant_id_type_subject"), "event", ["tenant_id", "type", "subject"], unique=False)
    op.create_table(
        "feed",
        sa.Column("position", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("transition_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("position", name=op.f("pk_feed")),
        sa.UniqueConstraint("transition_id", name=op.f("uq_feed_transition_id")),
    )
    op.create_index(op.f("ix_feed_intent_id_position"), "feed", ["intent_id", "position"], unique=False)
    op.create_index(op.f("ix_feed_tenant_id_position"), "feed", ["tenant_id", "position"], unique=False)
    op.create_index(
        op.f("ix_feed_tenant_id_recipient_ref_position"), "feed", ["tenant_id", "recipient_ref", "position"], unique=False
    )
    op.create_table(
        "feed_pending",
        sa.Column("transition_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("transition_id", name=op.f("pk_feed_pending")),
    )
    op.create_index(op.f("ix_feed_pending_intent_id_n"), "feed_pending", ["intent_id", "n"], unique=False)
    op.create_table(
        "feed_state",
        sa.Column("id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("complete_until", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_feed_state_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_feed_state")),
    )
    op.create_table(
        "gate",
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("slots", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("suppressed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "address_hash", name=op.f("pk_gate")),
    )
    op.create_table(
        "heartbeat",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_heartbeat")),
    )
    op.create_table(
        "inlet",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=False), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("request", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("status", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=True),
        sa.Column("error", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("sealed_request", sa.LargeBinary(), nullable=True),
        sa.Column("person_key_id", sa.Uuid(), nullable=True),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(status = 'waiting') = (done_at IS NULL)", name=op.f("ck_inlet_done")),
        sa.CheckConstraint("status <> 'waiting' OR request IS NOT NULL", name=op.f("ck_inlet_asked")),
        sa.CheckConstraint("status = 'waiting' OR request IS NULL", name=op.f("ck_inlet_emptied")),
        sa.CheckConstraint("status IN ('waiting', 'accepted', 'refused')", name=op.f("ck_inlet_status")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_inlet")),
    )
    op.create_index("ix_inlet_refused", "inlet", ["id"], unique=False, postgresql_where=sa.text("status = 'refused'"))
    op.create_index("ix_inlet_waiting", "inlet", ["id"], unique=False, postgresql_where=sa.text("status = 'waiting'"))
    op.create_table(
        "observation",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("judgement", sa.Text(), nullable=False),
        sa.Column("conflict", sa.Boolean(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("remote_id", sa.Text(), nullable=True),
        sa.Column("receipt_id", sa.Uuid(), nullable=True),
        sa.Column("source_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("judgement IN ('applied', 'duplicate', 'stale')", name=op.f("ck_observation_judgement")),
        sa.CheckConstraint(
            "source IN ('answer', 'receipt', 'poll', 'lookup', 'operator', 'reconcile')", name=op.f("ck_observation_source")
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'suppressed', 'expired', 'cancelled', 'prepared', 'submitted', 'unknown', 'failed', 'delivered')",
            name=op.f("ck_observation_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_observation")),
    )
    op.create_index(op.f("ix_observation_attempt_id"), "observation", ["attempt_id"], unique=False)
    op.create_table(
        "operator_action",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("subject", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operator_action")),
    )
    op.create_index(
        "ix_operator_action_cancel",
        "operator_action",
        ["tenant_id", sa.literal_column("(subject ->> 'event_id')")],
        unique=False,
        postgresql_where=sa.text("verb = 'cancel'"),
    )
    op.create_table(
        "outbox",
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("decision_id", sa.Uuid(), nullable=False),
        sa.Column("held_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("gate_seen_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=True),
        sa.Column("leased_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("lost_lease_count", sa.SmallInteger(), nullable=False),
        sa.Column(
            "claimable_at",
            sa.DateTime(timezone=True),
            sa.Computed("GREATEST(due_at, leased_until)", persisted=True),
            nullable=False,
        ),
        sa.CheckConstraint("lane IN ('otp', 'urgent', 'bulk')", name=op.f("ck_outbox_lane")),
        sa.CheckConstraint("(lease IS NULL) = (leased_until IS NULL)", name=op.f("ck_outbox_leased_until_then")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_intent_id"), "outbox", ["intent_id"], unique=False)
    op.create_index(
        op.f("ix_outbox_lane_route_id_claimable_at_attempt_id"),
        "outbox",
        ["lane", "route_id", "claimable_at", "attempt_id"],
        unique=False,
    )
    op.create_table(
        "pause",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=True),
        sa.Column("lane", sa.Text(), nullable=True),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("started_by", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("category IN ('otp', 'transactional', 'operational', 'marketing')", name=op.f("ck_pause_category")),
        sa.CheckConstraint("lane IN ('otp', 'urgent', 'bulk')", name=op.f("ck_pause_lane")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pause")),
    )
    op.create_index("ix_pause_running", "pause", ["tenant_id"], unique=False, postgresql_where=sa.text("ended_at IS NULL"))
    op.create_index(
        "uq_pause_stopped_route",
        "pause",
        ["route_id"],
        unique=True,
        postgresql_where=sa.text("ended_at IS NULL AND cause = 'auth_config'"),
    )
    op.create_table(
        "person_key",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("destroyed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('person', 'holding')", name=op.f("ck_person_key_kind")),
        sa.CheckConstraint("(wrapped_key IS NULL) = (destroyed_at IS NOT NULL)", name=op.f("ck_person_key_destroyed")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_person_key")),
        sa.UniqueConstraint("tenant_id", "kind", "name", name=op.f("uq_person_key_tenant_id_kind_name")),
    )
    op.create_table(
        "policy_version",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("reviewer", sa.Text(), nullable=True),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("effective_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("effective_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("status IN ('sample', 'reviewed')", name=op.f("ck_policy_version_status")),
        sa.CheckConstraint("effective_until IS NULL OR effective_until > effective_from", name=op.f("ck_policy_version_dates")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_policy_version")),
        sa.UniqueConstraint("tenant_id", "name", "version", name=op.f("uq_policy_version_tenant_id_name_version")),
    )
    op.create_index(
        op.f("ix_policy_version_tenant_id_effective_from"), "policy_version", ["tenant_id", "effective_from"], unique=False
    )
    op.create_table(
        "receipt",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("dedupe_key", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=True),
        sa.Column("reports", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("repeat_count", sa.BigInteger(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(status = 'observed') = (observed_at IS NOT NULL)", name=op.f("ck_receipt_observed")),
        sa.CheckConstraint(
            "status IN ('waiting', 'observed', 'unmatched', 'quarantined', 'no_news')", name=op.f("ck_receipt_status")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receipt")),
        sa.UniqueConstraint("route_id", "dedupe_key", name=op.f("uq_receipt_route_id_dedupe_key")),
    )
    op.create_index(op.f("ix_receipt_attempt_id"), "receipt", ["attempt_id"], unique=False)
    op.create_index(
        "ix_receipt_quarantined", "receipt", ["received_at"], unique=False, postgresql_where=sa.text("status = 'quarantined'")
    )
    op.create_index(
        "ix_receipt_unobserved",
        "receipt",
        ["received_at", "id"],
        unique=False,
        postgresql_where=sa.text("status IN ('waiting', 'unmatched')"),
    )
    op.create_table(
        "receipt_raw",
        sa.Column("receipt_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_call", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("receipt_id", name=op.f("pk_receipt_raw")),
    )
    op.create_table(
        "refused_receipt",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("person_key_id", sa.Uuid(), nullable=False),
        sa.Column("sealed_call", sa.LargeBinary(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_refused_receipt")),
    )
    op.create_index(op.f("ix_refused_receipt_route_id_received_at"), "refused_receipt", ["route_id", "received_at"], unique=False)
    op.create_table(
        "remote_id",
        sa.Column("route_id", sa.Uuid(), nullable=False),
        sa.Column("remote_id", sa.Text(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("part", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("route_id", "remote_id", name=op.f("pk_remote_id")),
        sa.UniqueConstraint("attempt_id", "part", name=op.f("uq_remote_id_attempt_id_part")),
    )
    op.create_table(
        "review",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("settled_as", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_review")),
    )
    op.create_index(op.f("ix_review_intent_id"), "review", ["intent_id"], unique=False)
    op.create_index("uq_review_open", "review", ["attempt_id"], unique=True, postgresql_where=sa.text("settled_at IS NULL"))
    op.create_table(
        "route",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("carrier", sa.Text(), nullable=False),
        sa.Column("sender", sa.Text(), nullable=False),
        sa.Column("receipt_url", sa.Text(), nullable=False),
        sa.Column("settings", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("sealed_credentials", sa.LargeBinary(), nullable=False),
        sa.Column("countries", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("rate_per_second", sa.Integer(), nullable=False),
        sa.Column("burst_count", sa.Integer(), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_route_channel")),
        sa.CheckConstraint("rate_per_second > 0 AND burst_count > 0", name=op.f("ck_route_rate")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_route")),
        sa.UniqueConstraint("tenant_id", "name", name=op.f("uq_route_tenant_id_name")),
    )
    op.create_table(
        "suppression",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("address_hash", sa.LargeBinary(), nullable=False),
        sa.Column("hash_key_id", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=True),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("cause_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("act IN ('suppress', 'lift')", name=op.f("ck_suppression_act")),
        sa.CheckConstraint(
            "category IN ('otp', 'transactional', 'operational', 'marketing')", name=op.f("ck_suppression_category")
        ),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_suppression_channel")),
        sa.CheckConstraint("source IN ('keyword', 'carrier', 'operator', 'api')", name=op.f("ck_suppression_source")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_suppression")),
    )
    op.create_index(
        op.f("ix_suppression_tenant_id_address_hash_at"), "suppression", ["tenant_id", "address_hash", "at"], unique=False
    )
    op.create_table(
        "tally",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", "label", name=op.f("pk_tally")),
    )
    op.create_table(
        "template_version",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("variables", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("channels", postgresql.ARRAY(sa.Text()), nullable=False),
        sa.Column("bodies", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.Column("default_locale", sa.Text(), nullable=False),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "category IN ('otp', 'transactional', 'operational', 'marketing')", name=op.f("ck_template_version_category")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_template_version")),
        sa.UniqueConstraint("tenant_id", "name", "version", name=op.f("uq_template_version_tenant_id_name_version")),
    )
    op.create_table(
        "tenant",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tenant")),
        sa.UniqueConstraint("name", name=op.f("uq_tenant_name")),
    )
    op.create_table(
        "transition",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("attempt_id", sa.Uuid(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("cause_id", sa.Uuid(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "state IN ('queued', 'deferred', 'handed_off', 'delivered', 'failed', 'unknown', 'suppressed', 'expired', 'cancelled')",
            name=op.f("ck_transition_state"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_transition")),
        sa.UniqueConstraint("intent_id", "n", name=op.f("uq_transition_intent_id_n")),
    )
    op.create_index(op.f("ix_transition_event_id"), "transition", ["event_id"], unique=False)
    op.create_table(
        "intent",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("business_key", sa.Text(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("category", sa.Text(), nullable=False),
        sa.Column("recipient_ref", sa.Text(), nullable=False),
        sa.Column("contact_id", sa.Uuid(), nullable=False),
        sa.Column("gate_hash", sa.LargeBinary(), nullable=False),
        sa.Column("declared_zone", sa.Text(), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("next_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("transition_count", sa.BigInteger(), nullable=False),
        sa.Column("holds_key", sa.Boolean(), nullable=False),
        sa.Column("close_requested_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("close_request", sa.Text(), nullable=True),
        sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("category IN ('otp', 'transactional', 'operational', 'marketing')", name=op.f("ck_intent_category")),
        sa.CheckConstraint("channel IN ('sms')", name=op.f("ck_intent_channel")),
        sa.CheckConstraint(
            "state IN ('queued', 'deferred', 'in_flight', 'delivered', 'failed', 'unknown', 'suppressed', 'expired', 'cancelled')",
            name=op.f("ck_intent_state"),
        ),
        sa.CheckConstraint("closed_at IS NULL OR reason IS NOT NULL", name=op.f("ck_intent_closed_with_reason")),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name=op.f("fk_intent_event_id_event")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_intent")),
    )
    op.create_index(op.f("ix_intent_event_id"), "intent", ["event_id"], unique=False)
    op.create_index("ix_intent_open", "intent", ["expires_at", "id"], unique=False, postgresql_where=sa.text("closed_at IS NULL"))
    op.create_index(
        "uq_intent_holder", "intent", ["tenant_id", "business_key", "channel"], unique=True, postgresql_where=sa.text("holds_key")
    )
    op.create_table(
        "attempt",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("ordinal", sa.SmallInteger(), nullable=False),
        sa.Column("route_id", sa.Uuid(), nullable=True),
        sa.Column("attempt_key", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("error_class", sa.Text(), nullable=True),
        sa.Column("error_code", sa.Text(), nullable=True),
        sa.Column("body_hash", sa.LargeBinary(), nullable=True),
        sa.Column("hash_key_id", sa.Text(), nullable=True),
        sa.Column("encoding", sa.Text(), nullable=True),
        sa.Column("segment_count", sa.SmallInteger(), nullable=True),
        sa.Column("decision_id", sa.Uuid(), nullable=True),
        sa.Column("lease", sa.BigInteger(), nullable=True),
        sa.Column("prepared_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("answered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("taken", sa.Boolean(), nullable=False),
        sa.Column("next_check_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("horizon_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("check_count", sa.BigInteger(), nullable=False),
        sa.Column("not_found_count", sa.SmallInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "error_class IN ('permanent_recipient', 'permanent_content', 'opted_out', 'transient', 'throttled', 'auth_config', 'not_handed_off', 'bounced_late', 'artifact_mismatch', 'unclassified')",
            name=op.f("ck_attempt_error_class"),
        ),
        sa.CheckConstraint(
            "state <> 'prepared' OR (prepared_at IS NOT NULL AND decision_id IS NOT NULL)", name=op.f("ck_attempt_admitted")
        ),
        sa.CheckConstraint(
            "state IN ('prepared', 'submitted', 'unknown') OR next_check_at IS NULL",
            name=op.f("ck_attempt_unchecked_when_settled"),
        ),
        sa.CheckConstraint(
            "state IN ('queued', 'suppressed', 'expired', 'cancelled', 'prepared', 'submitted', 'unknown', 'failed', 'delivered')",
            name=op.f("ck_attempt_state"),
        ),
        sa.CheckConstraint(
            "state NOT IN ('prepared', 'submitted') OR next_check_at IS NOT NULL", name=op.f("ck_attempt_checked_while_open")
        ),
        sa.ForeignKeyConstraint(["intent_id"], ["intent.id"], name=op.f("fk_attempt_intent_id_intent")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("attempt_key", name=op.f("uq_attempt_attempt_key")),
        sa.UniqueConstraint("intent_id", "ordinal", name=op.f("uq_attempt_intent_id_ordinal")),
    )
    op.create_index(
        "ix_attempt_doubtful",
        "attempt",
        ["route_id"],
        unique=False,
        postgresql_where=sa.text("state = 'unknown' AND next_check_at IS NOT NULL"),
    )
    op.create_index(
        "ix_attempt_next_check",
        "attempt",
        ["next_check_at", "id"],
        unique=False,
        postgresql_where=sa.text("next_check_at IS NOT NULL"),
    )
    op.create_index("ix_attempt_queued", "attempt", ["id"], unique=False, postgresql_where=sa.text("state = 'queued'"))
    op.create_table(
        "joining",
        sa.Column("event_id", sa.Uuid(), nullable=False),
        sa.Column("channel", sa.Text(), nullable=False),
        sa.Column("intent_id", sa.Uuid(), nullable=False),
        sa.Column("tenant_id", sa.Uuid(), nullable=False),
        sa.Column("contact_id", sa.Uuid(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["event_id"], ["event.id"], name=op.f("fk_joining_event_id_event")),
        sa.ForeignKeyConstraint(["intent_id"], ["intent.id"], name=op.f("fk_joining_intent_id_intent")),
        sa.PrimaryKeyConstraint("event_id", "channel", name=op.f("pk_joining")),
    )
    op.create_index(op.f("ix_joining_intent_id"), "joining", ["intent_id"], unique=False)
    guard()
    op.execute("INSERT INTO feed_state (id, epoch, complete_until) VALUES (1, 1, '1970-01-01 00:00:00+00')")


def downgrade() -> None:
    op.drop_index(op.f("ix_joining_intent_id"), table_name="joining")
    op.drop_table("joining")
    op.drop_index("ix_attempt_queued", table_name="attempt", postgresql_where=sa.text("state = 'queued'"))
    op.drop_index("ix_attempt_next_check", table_name="attempt", postgresql_where=sa.text("next_check_at IS NOT NULL"))
    op.drop_index(
        "ix_attempt_doubtful", table_name="attempt", postgresql_where=sa.text("state = 'unknown' AND next_check_at IS NOT NULL")
    )
    op.drop_table("attempt")
    op.drop_index("uq_intent_holder", table_name="intent", postgresql_where=sa.text("holds_key"))
    op.drop_index("ix_intent_open", table_name="intent", postgresql_where=sa.text("closed_at IS NULL"))
    op.drop_index(op.f("ix_intent_event_id"), table_name="intent")
    op.drop_table("intent")
    op.drop_index(op.f("ix_transition_event_id"), table_name="transition")
    op.drop_table("transition")
    op.drop_table("tenant")
    op.drop_table("template_version")
    op.drop_table("tally")
    op.drop_index(op.f("ix_suppression_tenant_id_address_hash_at"), table_name="suppression")
    op.drop_table("suppression")
    op.drop_table("route")
    op.drop_index("uq_review_open", table_name="review", postgresql_where=sa.text("settled_at IS NULL"))
    op.drop_index(op.f("ix_review_intent_id"), table_name="review")
    op.drop_table("review")
    op.drop_table("remote_id")
    op.drop_index(op.f("ix_refused_receipt_route_id_received_at"), table_name="refused_receipt")
    op.drop_table("refused_receipt")
    op.drop_table("receipt_raw")
    op.drop_index("ix_receipt_unobserved", table_name="receipt", postgresql_where=sa.text("status IN ('waiting', 'unmatched')"))
    op.drop_index("ix_receipt_quarantined", table_name="receipt", postgresql_where=sa.text("status = 'quarantined'"))
    op.drop_index(op.f("ix_receipt_attempt_id"), table_name="receipt")
    op.drop_table("receipt")
    op.drop_index(op.f("ix_policy_version_tenant_id_effective_from"), table_name="policy_version")
    op.drop_table("policy_version")
    op.drop_table("person_key")
    op.drop_index(
        "uq_pause_stopped_route", table_name="pause", postgresql_where=sa.text("ended_at IS NULL AND cause = 'auth_config'")
    )
    op.drop_index("ix_pause_running", table_name="pause", postgresql_where=sa.text("ended_at IS NULL"))
    op.drop_table("pause")
    op.drop_index(op.f("ix_outbox_lane_route_id_claimable_at_attempt_id"), table_name="outbox")
    op.drop_index(op.f("ix_outbox_intent_id"), table_name="outbox")
    op.drop_table("outbox")
    op.drop_index("ix_operator_action_cancel", table_name="operator_action", postgresql_where=sa.text("verb = 'cancel'"))
    op.drop_table("operator_action")
    op.drop_index(op.f("ix_observation_attempt_id"), table_name="observation")
    op.drop_table("observation")
    op.drop_index("ix_inlet_waiting", table_name="inlet", postgresql_where=sa.text("status = 'waiting'"))
    op.drop_index("ix_inlet_refused", table_name="inlet", postgresql_where=sa.text("status = 'refused'"))
    op.drop_table("inlet")
    op.drop_table("heartbeat")
    op.drop_table("gate")
    op.drop_table("feed_state")
    op.drop_index(op.f("ix_feed_pending_intent_id_n"), table_name="feed_pending")
    op.drop_table("feed_pending")
    op.drop_index(op.f("ix_feed_tenant_id_recipient_ref_position"), table_name="feed")
    op.drop_index(op.f("ix_feed_tenant_id_position"), table_name="feed")
    op.drop_index(op.f("ix_feed_intent_id_position"), table_name="feed")
    op.drop_table("feed")
    op.drop_index(op.f("ix_event_tenant_id_type_subject"), table_name="event")
    op.drop_index(op.f("ix_event_tenant_id_business_key"), table_name="event")
    op.drop_table("event")
    op.drop_table("dispatch_floor")
    op.drop_index(op.f("ix_decision_intent_id"), table_name="decision")
    op.drop_table("decision")
    op.drop_table("contact")
    op.drop_table("api_key")
    op.execute("DROP SEQUENCE lease")
    op.execute("DROP FUNCTION refuse_rewrite")
