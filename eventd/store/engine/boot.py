"""Which run of this machine it is: what was written and not flushed is lost where it has ended."""

from __future__ import annotations

import secrets
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_UNKNOWN = "unknown " + secrets.token_hex(8)
"""Where the system does not say, every process counts as a run of its own: sooner a new history than a false one."""


def boot_id() -> str:
    """Names the run of the system."""
    try:
        return _BOOT_ID.read_text().strip() or _UNKNOWN
    except OSError:
        return _UNKNOWN
