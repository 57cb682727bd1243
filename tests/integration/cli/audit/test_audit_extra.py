"""Without the extra `audit`, its commands exit with one line that says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.source import ROOT

_WITHOUT = """
import sys
sys.modules[sys.argv.pop(1)] = None
from eventd.cli.routerctl import main
main()
"""


@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("pyspark", ("run", "--out", "out")),
        ("pandas", ("stream", "--out", "out", "--once")),
        ("numpy", ("generate",)),
        ("pyarrow", ("generate",)),
    ],
)
def test_it_ends_in_one_line(tmp_path: Path, package: str, command: tuple[str, ...]) -> None:
    option = ("--out", "lake") if command == ("generate",) else ("--lake", "lake")
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT, package, "audit", *command, *option],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        timeout=60,
    )
    told = f"the audit needs the package {package}, which is not installed (in a clone: pip install '.[audit]')"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"error: {told}\n")
    assert list(tmp_path.iterdir()) == []
