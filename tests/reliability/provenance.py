"""Where and when figures were taken: date, commit and machine."""

from __future__ import annotations

import platform
import sqlite3
import subprocess
from datetime import UTC, datetime
from typing import Any

from eventd.bench.machine import machine
from tests.support.source import ROOT


def describe_run() -> dict[str, Any]:
    """Return the date, the commit, and what the figures depend on; the commit is empty outside of a clone."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=9", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    about = machine(None)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": done.stdout.strip() if done.returncode == 0 else "",
        "machine": f"{about['cores']} cores, {about['processor']}, {about['system']}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }
