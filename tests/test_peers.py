import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT

SKIPPING: Final = """
import pytest

@pytest.mark.peer
def test_a_peer():
    pytest.skip("there is none")

def test_another():
    pytest.skip("needs root")
"""


@pytest.mark.parametrize(("ci", "code", "summary"), [("true", 1, "1 failed, 1 skipped"), ("", 0, "2 skipped")])
def test_in_ci_a_missing_peer_is_a_failure(tmp_path: Path, ci: str, code: int, summary: str) -> None:
    """A skip would hide that nothing was tested against a real carrier."""
    (tmp_path / "test_it.py").write_text(SKIPPING)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-c",
        str(ROOT / "pyproject.toml"),
        str(tmp_path / "test_it.py"),
    ]

    run = subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False)

    assert run.returncode == code, run.stdout
    assert summary in run.stdout.splitlines()[-1]
