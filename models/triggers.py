"""The guard of append-only tables: no UPDATE, DELETE or TRUNCATE, except under the retention flag."""

from __future__ import annotations

from sqlalchemy import DDL, event

from models.base import Base

APPEND_ONLY = (
    "event",
    "decision",
    "observation",
    "transition",
    "joining",
    "suppression",
    "operator_action",
    "recipient",
    "consent",
    "preference",
    "cancelled",
)
IMMUTABLE = ("policy_version", "template_version", "route", "contact")

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


def guards_of(table: str) -> list[str]:
    """Give the statements that make one table refuse rewriting."""
    return [
        f"CREATE TRIGGER keep_rows BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION refuse_rewrite()",
        f"CREATE TRIGGER keep_table BEFORE TRUNCATE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION refuse_rewrite()",
    ]


def _quoted(statement: str) -> DDL:
    # DDL() formats with %. SQLAlchemy left its constructor untyped.
    return DDL(statement.replace("%", "%%"))  # type: ignore[no-untyped-call]


event.listen(Base.metadata, "after_create", _quoted(GUARD))
for _table in (*APPEND_ONLY, *IMMUTABLE):
    for _statement in guards_of(_table):
        event.listen(Base.metadata, "after_create", _quoted(_statement))
event.listen(
    Base.metadata,
    "after_create",
    _quoted("INSERT INTO feed_state (id, epoch, complete_until) VALUES (1, 1, '1970-01-01 00:00:00+00') ON CONFLICT DO NOTHING"),
)
