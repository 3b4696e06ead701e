"""A pytest plugin for the run in a copy of the tree: what it imports must be the copy's code and not the installed one."""

from __future__ import annotations

from pathlib import Path

import pytest

import app
import models
import policy
import tests


def pytest_sessionstart(session: pytest.Session) -> None:
    """Refuse to run against code from elsewhere: every planted bug would seem to go unnoticed."""
    del session
    here = Path.cwd().resolve()
    foreign = [
        str(found.__file__) for found in (app, models, policy, tests) if not Path(str(found.__file__)).is_relative_to(here)
    ]
    if foreign:
        raise pytest.UsageError(f"not the code of {here}: {', '.join(foreign)}")
