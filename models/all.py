"""All tables together, for whoever needs the whole metadata: migrations, audit, tests."""

from __future__ import annotations

from models import cancel, desk, ledger, people, rules, triggers, work
from models.base import Base

__all__ = ["Base", "cancel", "desk", "ledger", "people", "rules", "triggers", "work"]
