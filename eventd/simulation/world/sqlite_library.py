"""The SQLite library that Python itself uses, reached with ctypes, and the parts of its interface that a disk needs.

The structures follow `sqlite3.h`, whose layout of version 1 of each is frozen.
"""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from functools import cache
from typing import Any, Final

from eventd.errors import EventdError
from eventd.store.engine.address import sqlite_version

OK: Final = 0
FULL: Final = 13
IOERR_READ: Final = 266
IOERR_WRITE: Final = 778
IOERR_FSYNC: Final = 1034
OPEN_MAIN_DB: Final = 0x100
OPEN_WAL: Final = 0x80000

OpenFile = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
DeleteFile = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
FillRandom = CFUNCTYPE(c_int, c_void_p, c_int, c_void_p)
CloseFile = CFUNCTYPE(c_int, c_void_p)
WriteFile = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
TruncateFile = CFUNCTYPE(c_int, c_void_p, c_int64)
SyncFile = CFUNCTYPE(c_int, c_void_p, c_int)


class FileMethods(Structure):
    """`sqlite3_io_methods`, the functions of an open file, of version 3."""

    _fields_ = (
        ("version", c_int),
        ("close", CloseFile),
        ("read", WriteFile),
        ("write", WriteFile),
        ("truncate", TruncateFile),
        ("sync", SyncFile),
        ("others", c_void_p * 13),
    )


class OpenedFile(Structure):
    """`sqlite3_file`: the beginning of each open file."""

    _fields_ = (("methods", POINTER(FileMethods)),)


class FileSystem(Structure):
    """`sqlite3_vfs`, the functions of a file system, of version 3."""

    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", OpenFile),
        ("delete", DeleteFile),
        ("before_random", c_void_p * 6),
        ("random", FillRandom),
        ("others", c_void_p * 7),
    )


class SimulationUnavailable(EventdError):
    """This Python cannot run the simulation."""


@cache
def load_library() -> Any:
    """Return the library that `sqlite3` is linked with. Raises `SimulationUnavailable`."""
    import _sqlite3

    file = getattr(_sqlite3, "__file__", None)  # looked up there, a name is found in what it is linked with
    try:
        library = ctypes.CDLL(file)
        library.sqlite3_libversion.restype = c_char_p
        library.sqlite3_vfs_find.restype = POINTER(FileSystem)
        library.sqlite3_vfs_find.argtypes = [c_char_p]
        library.sqlite3_vfs_register.argtypes = [POINTER(FileSystem), c_int]
        library.sqlite3_randomness.argtypes = [c_int, c_void_p]
        library.sqlite3_randomness.restype = None
        found = library.sqlite3_libversion().decode()
    except (OSError, AttributeError) as error:
        raise SimulationUnavailable(
            f"the SQLite of this Python cannot be reached: {error}",
            hint="run a Python whose sqlite3 module uses a shared library, such as that of a Linux distribution",
        ) from None
    if found != sqlite_version():
        raise SimulationUnavailable(
            f"two SQLite libraries are loaded: {found}, and {sqlite_version()}, which Python uses",
            hint="run the simulation with another Python",
        )
    return library
