"""Reads the journal of the service manager."""

from __future__ import annotations

import subprocess
from typing import Final

_SECONDS: Final = 30.0


def read_journal(unit: str, lines: int) -> str:
    """Return the last lines that units of this name have logged; empty if there are none, or none may be read.

    Raises OSError if the journal's program is missing or does not end.
    """
    command = ["journalctl", "--unit", unit, "--lines", str(lines), "--output", "short-iso", "--no-pager", "--quiet"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"no answer within {_SECONDS:.0f} s") from None
    return done.stdout.decode("utf-8", "backslashreplace")
