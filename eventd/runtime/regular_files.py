"""Reads small files that other programs write, such as keys and certificates."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple


class NotRegular(Exception):
    """The path does not name a regular file, but a folder, a pipe or a device."""


class RegularFile(NamedTuple):
    """The beginning of a file, and its mode."""

    content: bytes
    mode: int


def read_regular(path: Path, most: int, *, folder: int | None = None) -> RegularFile:
    """Return at most `most` bytes of a file. Raises `NotRegular`, and OSError.

    With an open `folder`, `path` is a name in it, and must not be a link.
    """
    # Danger: opening a named pipe waits for a writer, and blocks everything that the node has to do.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if folder is None else os.O_NOFOLLOW)
    file = os.open(path, flags, dir_fd=folder)
    try:
        mode = os.fstat(file).st_mode
        if not stat.S_ISREG(mode):
            raise NotRegular
        return RegularFile(os.read(file, most), mode)
    finally:
        os.close(file)
