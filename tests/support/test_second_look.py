"""What passes alone is told as unsteady; what fails again has failed, and so have too many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import ROOT

ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("n", range({}))
def test_it(n):
    seen = Path(f"seen-{{n}}")
    before = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (before + 1))
    assert before in {}
"""


@pytest.mark.parametrize(
    ("tests", "passes_at", "status", "told"),
    [
        (1, (0,), 0, False),
        (2, (1, 2), 0, True),
        (1, (1,), 1, False),
        (1, (), 1, False),
        (4, (1, 2), 1, False),
    ],
    ids=["steady", "passes twice alone", "passes once alone", "fails", "too many fail"],
)
def test_a_second_look(tmp_path: Path, tests: int, passes_at: tuple[int, ...], status: int, told: bool) -> None:
    (tmp_path / "test_it.py").write_text(ONCE.format(tests, passes_at))
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.support.second_look import main
sys.exit(main(["--quiet"]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    assert ("UNSTEADY" in done.stdout) == told
