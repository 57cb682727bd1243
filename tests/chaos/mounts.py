"""Small file systems in memory, one for each node that is to find its disk full or read-only."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DISK_MEBIBYTES = 192


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system at a new folder."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK_MEBIBYTES}m", "eventd-chaos", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def mount(*arguments: str) -> None:
    """Run the command `mount`. Raises AssertionError with its output."""
    done = _mount(*arguments)
    assert done.returncode == 0, f"mount {' '.join(arguments)}: {done.stderr}"


def make_read_only(folder: Path) -> bool:
    """Make the file system at a folder read-only; return False while a process has a file there open for writing."""
    return _mount("-o", "remount,ro", str(folder)).returncode == 0


def _mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["mount", *arguments], capture_output=True, text=True)
