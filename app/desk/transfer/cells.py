"""Cells of a CSV file: safe to open in a spreadsheet, and read back as they were."""

from __future__ import annotations

import re
from typing import Final

# What spreadsheets take for a formula, also behind blanks that they trim. A telephone number is one to them.
FORMULA: Final = re.compile(r"[' ]*[=+\-@\t\r]")


def write_cell(value: str) -> str:
    """Put an apostrophe before what a spreadsheet would calculate: it then shows the text."""
    return f"'{value}" if FORMULA.match(value) else value


def read_cell(cell: str) -> str:
    """Take off the apostrophe that `write_cell` put there."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell
