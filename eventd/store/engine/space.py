"""Free space of a file system for this process."""

from __future__ import annotations

import os
from pathlib import Path

LEAST_BYTES = 1 << 20
"""Minimum number of free bytes: with fewer, the next batch may not fit."""


def bytes_left(folder: Path) -> int | None:
    """Return the free bytes of a folder's file system, for root with its reserve; None if they are unknown."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    blocks = found.f_bfree if os.geteuid() == 0 else found.f_bavail  # some are reserved for root
    return blocks * found.f_frsize


def shortage(database: Path | None) -> str:
    """Return why the next event may not fit into this SQLite file; empty if there is room, or that is unknown."""
    left = bytes_left(database.parent) if database is not None else None
    if left is None or left >= LEAST_BYTES:
        return ""
    return f"the disk that holds {database} is full: {left // 1024} KiB are left; free some space"
