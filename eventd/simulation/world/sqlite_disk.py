"""The disks of a run: every file of a database below a machine's folder is written through here.

SQLite opens files by its default file system, which is replaced during a run. Only writes, syncs, cuts and deletions
of databases and their write-ahead logs are intercepted; everything else remains SQLite's own code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from ctypes import POINTER, addressof, cast, memmove, pointer, string_at
from functools import cache
from typing import Any, Protocol

from eventd.simulation.world import sqlite_library as sqlite
from eventd.simulation.world.disk_file import DiskFile
from eventd.simulation.world.sqlite_library import (
    CloseFile,
    DeleteFile,
    FileMethods,
    FileSystem,
    FillRandom,
    OpenedFile,
    OpenFile,
    SimulationUnavailable,
    SyncFile,
    TruncateFile,
    WriteFile,
    load_library,
)
from eventd.simulation.world.streams import Stream

_KINDS = sqlite.OPEN_MAIN_DB | sqlite.OPEN_WAL


class WatchedDisk(Protocol):
    """The methods of a machine's disk that are called for its files. Those that return a code return 0 for success."""

    def opened(self, path: str) -> DiskFile:
        """Return the file at a path, which may be new."""
        ...

    def deleted(self, path: str) -> None: ...

    def judge(self, operation: str, file: DiskFile) -> int:
        """Return the error code of a `write` or `sync`; 0 lets it succeed."""
        ...


FindDisk = Callable[[str], WatchedDisk | None]
"""Returns the disk of a path; None for one that no machine of the run has."""


class SqliteDisks:
    """The file system of the runs of this process; use `sqlite_disks`, because SQLite keeps its address for ever."""

    def __init__(self) -> None:
        self._library = load_library()
        self._find: FindDisk = _no_disk
        self._stream = Stream(0)
        self._base = self._library.sqlite3_vfs_find(None)
        self._open: dict[int, tuple[WatchedDisk, DiskFile]] = {}  # by the address of the open file
        self._methods: dict[int, FileMethods] = {}  # by the address of those they replace
        self._kept: list[object] = []
        self._system = self._make_system()

    @contextmanager
    def installed(self, find: FindDisk, stream: Stream) -> Iterator[None]:
        """Use these disks for databases that are opened during the block. Raises `SimulationUnavailable`.

        SQLite's own randomness comes from the stream.
        """
        self._find, self._stream = find, stream
        self._library.sqlite3_vfs_register(pointer(self._system), 1)
        self._library.sqlite3_randomness(0, None)  # its next numbers begin from the stream
        try:
            found = self._library.sqlite3_vfs_find(None)
            if ctypes.addressof(found.contents) != addressof(self._system):
                raise SimulationUnavailable("SQLite does not take the file system of the simulation")
            yield
        finally:
            self._library.sqlite3_vfs_register(self._base, 1)
            self._library.sqlite3_vfs_unregister(pointer(self._system))
            self._library.sqlite3_randomness(0, None)
            self._find = _no_disk
            self._open.clear()

    def forget(self, files: Iterable[DiskFile]) -> None:
        """Let what is still open of these files write to nothing that counts: their process has ended."""
        gone = {id(file) for file in files}
        self._open = {at: entry for at, entry in self._open.items() if id(entry[1]) not in gone}

    def _make_system(self) -> FileSystem:
        system = FileSystem()
        memmove(addressof(system), addressof(self._base.contents), ctypes.sizeof(FileSystem))
        system.next = None
        system.name = b"eventd-simulation"
        base_open, base_delete = self._base.contents.open, self._base.contents.delete

        def open_file(vfs: int, name: int, file: int, flags: int, out: int) -> int:
            code: int = base_open(vfs, name, file, flags, out)
            self._open.pop(file, None)
            if code == sqlite.OK and name and flags & _KINDS:
                path = string_at(name).decode()
                disk = self._find(path)
                if disk is not None:
                    self._open[file] = disk, disk.opened(path)
                    opened = cast(file, POINTER(OpenedFile)).contents
                    opened.methods = pointer(self._replaced(opened.methods))
            return code

        def delete_file(vfs: int, name: bytes, sync: int) -> int:
            disk = self._find(name.decode())
            if disk is not None:
                disk.deleted(name.decode())
            done: int = base_delete(vfs, name, sync)
            return done

        def fill_random(_vfs: int, count: int, out: int) -> int:
            memmove(out, self._stream.randbytes(count), count)
            return count

        system.open, system.delete = OpenFile(open_file), DeleteFile(delete_file)
        system.random = FillRandom(fill_random)
        self._kept += [base_open, base_delete, system.open, system.delete, system.random]
        return system

    def _replaced(self, methods: Any) -> FileMethods:
        """Return these methods with those of the disk in their place."""
        at = addressof(methods.contents)
        if at in self._methods:
            return self._methods[at]
        made = FileMethods()
        memmove(addressof(made), at, ctypes.sizeof(FileMethods))
        base = methods.contents
        base_close, base_write, base_truncate = base.close, base.write, base.truncate

        def close(file: int) -> int:
            self._open.pop(file, None)
            closed: int = base_close(file)
            return closed

        def write(file: int, data: int, count: int, offset: int) -> int:
            entry = self._open.get(file)
            if entry is not None:
                code = entry[0].judge("write", entry[1])
                if code:
                    return code
                entry[1].write(offset, string_at(data, count))
            written: int = base_write(file, data, count, offset)
            return written

        def truncate(file: int, size: int) -> int:
            entry = self._open.get(file)
            if entry is not None:
                entry[1].truncate(size)
            cut: int = base_truncate(file, size)
            return cut

        def sync(file: int, _flags: int) -> int:
            entry = self._open.get(file)
            if entry is not None:
                code = entry[0].judge("sync", entry[1])
                if code:
                    return code
                entry[1].sync()
            return sqlite.OK  # the machine's own disk is not asked

        made.close, made.write = CloseFile(close), WriteFile(write)
        made.truncate, made.sync = TruncateFile(truncate), SyncFile(sync)
        self._kept += [made.close, made.write, made.truncate, made.sync, base_close, base_write, base_truncate]
        self._methods[at] = made
        return made


def _no_disk(_path: str) -> None:
    return None


@cache
def sqlite_disks() -> SqliteDisks:
    """Return the one file system of this process. Raises `SimulationUnavailable`."""
    return SqliteDisks()
