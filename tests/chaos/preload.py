"""A library that makes the disk of a process fail, and its wall clock wrong: it is loaded before all others."""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from functools import cache
from pathlib import Path

_SOURCE = Path(__file__).with_name("preload.c")
_LAYOUT = struct.Struct("=iiiiq")
_FLUSH_ERROR, _WRITE_ERROR, _FLUSH_DELAY, _HITS = range(4)


@cache
def compiler() -> str | None:
    """Return the C compiler of this machine; None without one."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


class Preload:
    """The faults of one node, which all of its processes follow at once."""

    def __init__(self, folder: Path, name: str) -> None:
        self._library = folder / "preload.so"
        if not self._library.exists():
            compile_library(self._library)
        self._file = folder / f"{name}.control"
        self._file.write_bytes(bytes(_LAYOUT.size))
        with self._file.open("r+b") as opened:
            self._memory = mmap.mmap(opened.fileno(), _LAYOUT.size)
        self._numbers = memoryview(self._memory).cast("i")
        self._offset = memoryview(self._memory)[16:].cast("q")
        self._folder = folder / name

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which a process has these faults."""
        control, node = str(self._file), str(self._folder)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CONTROL": control, "CHAOS_FOLDER": node}

    @property
    def hits(self) -> int:
        """Return how many flushes and writes failed or were late so far."""
        return self._numbers[_HITS]

    def fail_flushes(self, error: int) -> None:
        """Let each flush end with this errno; 0: let them work."""
        self._numbers[_FLUSH_ERROR] = error

    def fail_writes(self, error: int) -> None:
        """Let each write to a file of the node end with this errno; 0: let them work."""
        self._numbers[_WRITE_ERROR] = error

    def delay_flushes(self, milliseconds: int) -> None:
        """Let each flush take so much longer."""
        self._numbers[_FLUSH_DELAY] = milliseconds

    def set_clock(self, seconds: float) -> None:
        """Shift the wall clock."""
        self._offset[0] = round(seconds * 1_000_000)


def compile_library(library: Path) -> None:
    """Compile the library. Raises AssertionError with the compiler's messages."""
    found = compiler()
    assert found is not None
    command = [found, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", str(library), str(_SOURCE), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
