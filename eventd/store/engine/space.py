"""How much room a file system has left for this process."""

from __future__ import annotations

import os
from pathlib import Path

LEAST_BYTES = 1 << 20
"""With less, the next batch may not fit."""


def bytes_left(folder: Path) -> int | None:
    """Bytes that this process may still write below a folder; None where the system does not tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail  # some are kept for root
    return blocks * found.f_frsize


def shortage(database: Path | None) -> str:
    """Why the next event may find no room in this SQLite file; blank where there is some, or where it is unknown."""
    left = bytes_left(database.parent) if database is not None else None
    if left is None or left >= LEAST_BYTES:
        return ""
    return f"the disk that holds {database} is full: {left // 1024} KiB are left; free some space"
