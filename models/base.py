"""The base of all tables: naming of constraints, shared column types, checks from enums."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, LargeBinary, MetaData, Text, Uuid
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

Id = Annotated[UUID, mapped_column(Uuid, primary_key=True)]
Instant = Annotated[datetime, mapped_column(DateTime(timezone=True))]
Json = Annotated[dict[str, Any], mapped_column(JSONB)]
Texts = Annotated[list[str], mapped_column(ARRAY(Text))]


class Base(DeclarativeBase):
    """Every table of Daybook."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as it is
        str: Text,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
        UUID: Uuid,
        int: BigInteger,
    }


def one_of(column: str, words: type[StrEnum]) -> CheckConstraint:
    """Hold a column to an enum's words; a migration widens it when a word is added."""
    listed = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({listed})", name=column)
