"""Opens files and makes folders on a local disk, where any other program may have put something else in their place."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def is_regular(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a folder is a regular file, and not a link to one."""
    return entry.is_file(follow_symlinks=False)


def open_regular(place: Path) -> BufferedReader:
    """Open a file to read it. Raises OSError if it is not a regular file: a read from a pipe might never end."""
    file = open(place, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "it is not a regular file")


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, durably."""
    if folder.is_dir():
        return
    if folder.exists() and not folder.is_dir():  # which another process may have created meanwhile
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is not a folder")
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the creation, renaming or deletion of files in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
