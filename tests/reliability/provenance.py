"""Where and when figures were taken: date, commit and machine."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from typing import Any, Final

from eventd.bench.machine import machine
from tests.support.source import ROOT

_CODE: Final = ("eventd", "federation", "migrations")
"""What figures are about: a change of the tests, or of a kept file, does not make them those of another version."""


def describe_run() -> dict[str, Any]:
    """Return the date, the commit, and what the figures depend on; the commit is empty outside of a clone."""
    about = machine(None)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short=9", "HEAD") + "-changed" * bool(_git("status", "--porcelain", *_CODE)),
        "machine": f"{about['cores']} cores, {about['processor']}, {about['system']}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def _git(*words: str) -> str:
    """Return what a command of git prints; empty if it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
