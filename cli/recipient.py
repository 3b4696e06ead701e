"""`daybook recipient`: bring recipients in from files, and give them out."""

from __future__ import annotations

from typing import Final

import click

from app.desk.transfer.nouns import RECIPIENTS
from cli.transfer import transfers

recipient: Final[click.Group] = transfers(RECIPIENTS, "Import and export recipients: how people are described.")
