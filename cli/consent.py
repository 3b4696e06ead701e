"""`daybook consent`: bring consents in from files, and give them out."""

from __future__ import annotations

from typing import Final

import click

from app.desk.transfer.nouns import CONSENTS
from cli.transfer import transfers

consent: Final[click.Group] = transfers(
    CONSENTS, "Import and export consents: the evidence that people agreed, or took that back."
)
