"""`daybook preference`: bring preferences in from files, and give them out."""

from __future__ import annotations

from typing import Final

import click

from app.desk.transfer.nouns import PREFERENCES
from cli.transfer import transfers

preference: Final[click.Group] = transfers(PREFERENCES, "Import and export preferences: what people ask for.")
