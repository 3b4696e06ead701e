"""`python -m local.contents`: the table of contents, made of the first docstring line of each module."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Final

FOLDERS: Final = ("web", "tasks", "app", "models", "policy", "cli", "simulator", "local", "bench")


def main(root: Path = Path(__file__).parent.parent) -> None:
    """Print one line per module, by folder."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*.py"), key=lambda file: (file.parent, file.name)):
            docstring = ast.get_docstring(ast.parse(file.read_text()))
            name = file.relative_to(root).as_posix().replace("/__init__.py", "/")
            sys.stdout.write(f"{name:<36} {(docstring or '-').splitlines()[0]}\n")


if __name__ == "__main__":
    main()
