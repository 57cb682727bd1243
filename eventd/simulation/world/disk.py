"""The disk of one machine: the files of its database, what a power loss leaves of them, and the faults of the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from eventd.simulation.world import sqlite_library as sqlite
from eventd.simulation.world.disk_file import DiskFile
from eventd.simulation.world.sqlite_disk import SqliteDisks
from eventd.simulation.world.streams import Stream

DATABASE = "eventd.db"
"""The name of the database; its other files have this name with a suffix."""
_VOLATILE = "-shm"
"""The suffix of a file that no restart of the machine leaves."""
_HEAD = ".head"
"""The suffix of the head file, which is flushed only now and then."""
REAPPEARS = 0.25
"""How probably a power loss undoes the deletion of a file."""


class DiskFault(StrEnum):
    """What a disk does to writes and syncs."""

    NONE = ""
    ERRORS = "errors"  # writes fail
    FULL = "full"  # writes fail for want of room
    SYNC = "sync"  # syncs fail, and what they should have written is dropped


_CODES = {
    ("write", DiskFault.ERRORS): sqlite.IOERR_WRITE,
    ("sync", DiskFault.ERRORS): sqlite.IOERR_FSYNC,
    ("write", DiskFault.FULL): sqlite.FULL,
    ("sync", DiskFault.SYNC): sqlite.IOERR_FSYNC,
}


class Disk:
    """The disk of a machine. Each life of the machine has a folder of its own, with what the last one left.

    `fault` is what happens to each further write and sync; `writes` and `syncs` count those that succeeded.
    """

    def __init__(self, root: Path, stream: Stream) -> None:
        self.root = root
        self.fault = DiskFault.NONE
        self.writes = 0
        self.syncs = 0
        self.restarts = 0
        """How often a write-ahead log was restarted over its old frames."""
        self._stream = stream
        self._files: dict[str, DiskFile] = {}  # by name
        self._gone: dict[str, DiskFile] = {}  # deleted, perhaps only in memory
        self._heads: dict[str, bytes] = {}
        self._number = 0
        self.folder = root / "0"
        self.folder.mkdir(parents=True)

    # --- called for SQLite ----------------------------------------------------------------------------------------

    def opened(self, path: str) -> DiskFile:
        name = Path(path).name
        if name not in self._files:
            self._files[name] = DiskFile(on_restart=self._count_restart)
            existing = Path(path).read_bytes() if Path(path).exists() else b""
            self._files[name].image += existing
            self._files[name].is_named = bool(existing)
        return self._files[name]

    def _count_restart(self) -> None:
        self.restarts += 1

    def deleted(self, path: str) -> None:
        name = Path(path).name
        if (file := self._files.pop(name, None)) is not None:
            self._gone[name] = file

    def judge(self, operation: str, file: DiskFile) -> int:
        code = _CODES.get((operation, self.fault), sqlite.OK)
        if code and operation == "sync":
            file.forget()
        elif operation == "sync":
            self.syncs += 1
        else:
            self.writes += not code
        return code

    def rewrite(self, path: Path) -> None:
        """Write a file of the machine again, as it is, and flush it. Raises OSError."""
        if path.name not in self._files:
            return
        if self.fault is not DiskFault.NONE:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._files[path.name].write(0, path.read_bytes())
        self._files[path.name].sync()

    # --- backups ----------------------------------------------------------------------------------------------------

    def copy(self) -> dict[str, bytes]:
        """Return a copy of the database as it is between two transactions, by the names of its files."""
        files = [self.folder / f"{DATABASE}{suffix}" for suffix in ("", "-wal")]
        return {file.name: file.read_bytes() for file in files if file.exists()}

    def restore(self, copy: dict[str, bytes], *, keeps_head: bool) -> None:
        """Replace the database, which no process has open, by a copy; the head file stays, or is deleted."""
        for name in [name for name in (*self._files, *os.listdir(self.folder)) if name.startswith(DATABASE)]:
            if keeps_head and name.endswith(_HEAD):
                continue
            self._files.pop(name, None)
            self._heads.pop(name, None)
            (self.folder / name).unlink(missing_ok=True)
        self._gone.clear()
        for name, content in copy.items():
            (self.folder / name).write_bytes(content)

    # --- restarts of the machine ----------------------------------------------------------------------------------

    def keep(self, disks: SqliteDisks) -> None:
        """Begin a new life with the files as the killed process left them."""
        self._move(disks, lambda name, path: path.read_bytes())

    def lose_power(self, disks: SqliteDisks) -> None:
        """Begin a new life with what a power loss left."""
        gone = {name: file for name, file in self._gone.items() if file.is_named and name not in self._files}
        self._move(disks, self._after_power_loss)
        for name, file in gone.items():
            if self._stream.random() < REAPPEARS and (content := file.after_power_loss(self._stream)) is not None:
                (self.folder / name).write_bytes(content)
        self._files.clear()  # what is there now is on the disk

    def _after_power_loss(self, name: str, path: Path) -> bytes | None:
        if name in self._files:
            return self._files[name].after_power_loss(self._stream)
        content = path.read_bytes()
        if name.endswith(_HEAD) and self._stream.random() < 0.5:
            return self._heads.get(name, content)
        return content

    def _move(self, disks: SqliteDisks, read: Callable[[str, Path], bytes | None]) -> None:
        self._number += 1
        new = self.root / str(self._number)
        new.mkdir()
        disks.forget(list(self._files.values()))
        kept: dict[str, DiskFile] = {}
        for path in sorted(self.folder.iterdir()):
            if path.is_dir() or path.name.endswith(_VOLATILE):
                continue
            content = read(path.name, path)
            if content is not None:
                (new / path.name).write_bytes(content)
                (new / path.name).chmod(path.stat().st_mode)
                if path.name.endswith(_HEAD):
                    self._heads[path.name] = content
                if path.name in self._files:
                    kept[path.name] = self._files[path.name]
        self._files = kept
        self._gone.clear()
        self.folder = new

    def remove(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.root, ignore_errors=True)
